"""Encoder-decoders for onnxruntime-genai as packages: texts, and sounds as Whisper hears them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.genai_config import import_genai_config

Folders = Callable[..., Any]
COUNT = 8
HEARD = (7, 12, 9, 30)  # the source that the encoder of sounds gives, whatever it hears
START = "<|startoftranscript|>"
STFT = {"n_fft": 400, "frame_length": 400, "hop_length": 160}
LOG_MEL = {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": 80}
STEPS: tuple[tuple[str, dict[str, int]], ...] = (("AudioDecoder", {}), ("STFTNorm", STFT), ("LogMelSpectrum", LOG_MEL))
SEQUENCE = [{"operation": {"name": kind.lower(), "type": kind, "attrs": attrs}} for kind, attrs in STEPS]
AUDIO_PROCESSOR = {"feature_extraction": {"sequence": SEQUENCE}}


def with_encoder(config: dict[str, Any]) -> None:
    model = config["model"]
    model["type"] = "marian"
    model["encoder"] = {
        "filename": "encoder.onnx",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "inputs": {"input_ids": "input_ids"},
        "outputs": {"cross_present_key_names": "cross.%d.key", "cross_present_value_names": "cross.%d.value"},
    }
    model["decoder_start_token_id"] = model["bos_token_id"]
    model["decoder"]["inputs"] |= {
        "cross_past_key_names": "cross_key_values.%d.key",
        "cross_past_value_names": "cross_key_values.%d.value",
    }


def with_sounds(config: dict[str, Any]) -> None:
    with_encoder(config)
    config["model"]["type"] = "whisper"
    del config["model"]["decoder_start_token_id"]
    config["model"]["encoder"]["inputs"] = {"audio_features": "audio_features"}


def hear(folder: Path, bands: int = 80, dtype: int = TensorProto.FLOAT) -> None:
    """Gives the encoder features instead of tokens, and the tokenizer the start mark of Whisper."""
    path = folder / "encoder.onnx"
    model = onnx.load(path)
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero_")
    source = numpy_helper.from_array(np.array([HEARD], np.int64), "heard_")
    axes = numpy_helper.from_array(np.array([1, 2], np.int64), "axes_")
    model.graph.initializer.extend([zero, source, axes])
    nodes = [
        helper.make_node("Cast", ["audio_features"], ["features_"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["features_", "axes_"], ["mean_"], keepdims=0),
        helper.make_node("Mul", ["mean_", "zero_"], ["none_"]),
        helper.make_node("Cast", ["none_"], ["number_"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["number_", "last_"], ["column_"]),
        helper.make_node("Add", ["column_", "heard_"], ["input_ids"]),
    ]
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "last_"))
    for index, node in enumerate(nodes):
        model.graph.node.insert(index, node)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("audio_features", dtype, ["batch", bands, 3000]))
    onnx.save(model, path)
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"<s>"', json.dumps(START)))
    (folder / "audio_processor_config.json").write_text(json.dumps(AUDIO_PROCESSOR))


def test_a_text_becomes_another_text(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder("cross", edit=with_encoder)
    made = tmp_path / "made"
    import_genai_config(folder.path, made)
    _, problems = gp.validate(made)
    assert problems == ()
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(made) as pipe:
        assert list(pipe.generate(tokens=prompt, max_new_tokens=COUNT).tokens) == folder.package.answer(prompt, COUNT)


def test_a_sound_is_written_down(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder("cross", edit=with_sounds)
    hear(folder.path)
    made = tmp_path / "made"
    import_genai_config(folder.path, made)
    _, problems = gp.validate(made)
    assert problems == ()
    with gp.load(made) as pipe:
        samples = 0.5 * np.sin(np.arange(16000, dtype=np.float32) / 5)
        heard = pipe.run({"audio": (samples, 16000)}, max_new_tokens=COUNT)
    assert heard["text"].strip() == folder.package.answer_text(HEARD, COUNT).strip()


@pytest.mark.parametrize("file", ["genai_config.json", "generation_config.json"])
def test_tokens_that_are_never_chosen_come_from_either_file(genai_folder: Folders, tmp_path: Path, file: str) -> None:
    folder = genai_folder("cross", edit=with_sounds)
    hear(folder.path)
    first, second = folder.package.answer(HEARD, COUNT)[:2]
    never = {"suppress_tokens": [second, -1], "begin_suppress_tokens": [first]}
    if file == "genai_config.json":
        folder.reconfigure(lambda config: config["search"].update(never))
        other = {"suppress_tokens": [first], "eos_token_id": 9}
    else:
        other = {**never, "eos_token_id": 9}
    (folder.path / "generation_config.json").write_text(json.dumps(other))
    made = tmp_path / "made"
    report = import_genai_config(folder.path, made)
    assert gp.validate(made)[1] == ()
    said = {row.key: row.outcome for row in report.rows if row.file == "generation_config.json"}
    assert said == {"": "dropped"} | (
        {"suppress_tokens": "dropped"} if file == "genai_config.json" else dict.fromkeys(never, "mapped")
    )
    with gp.load(made) as pipe:
        samples = 0.5 * np.sin(np.arange(16000, dtype=np.float32) / 5)
        text = pipe.run({"audio": (samples, 16000)}, max_new_tokens=COUNT)["text"]
    texts = folder.package.vocabulary.tokens
    assert text
    assert not text.startswith(texts[first])
    assert texts[second] not in text


def test_never_chosen_tokens_that_are_not_there_are_refused(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder("cross", edit=with_sounds)
    hear(folder.path)
    folder.reconfigure(lambda config: config["search"].update(suppress_tokens=[7, 999999]))
    with pytest.raises(ImportRefusedError, match="names 999999: the tokenizer has no such tokens"):
        import_genai_config(folder.path, tmp_path / "made")


def test_what_does_not_fit_the_sound_is_refused(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder("cross", edit=with_sounds)
    hear(folder.path, bands=128, dtype=TensorProto.FLOAT16)
    processor = json.loads(json.dumps(AUDIO_PROCESSOR))
    processor["feature_extraction"]["sequence"][1]["operation"]["attrs"]["hop_length"] = 80
    (folder.path / "audio_processor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ImportRefusedError) as caught:
        import_genai_config(folder.path, tmp_path / "made")
    assert "makes 80 bands of 3000 frames" in caught.value.message
    assert "the port is float16" in caught.value.message
    assert "hop_length" in caught.value.message
    assert not (tmp_path / "made").exists()


def test_a_text_without_a_start_is_refused(genai_folder: Folders, tmp_path: Path) -> None:
    def edit(config: dict[str, Any]) -> None:
        with_encoder(config)
        del config["model"]["decoder_start_token_id"]

    with pytest.raises(ImportRefusedError, match="what an answer starts with is not known"):
        import_genai_config(genai_folder("cross", edit=edit).path, tmp_path / "made")

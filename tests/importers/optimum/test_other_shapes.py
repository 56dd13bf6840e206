"""Sentence embeddings and Whisper: pooling and audio programs come from the config files beside the graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.testing.builder import GraphBuilder

HEARD = (40, 41, 42)  # tokens that the encoder hears in any sound
FEATURES = {
    "feature_extractor_type": "WhisperFeatureExtractor", "feature_size": 80, "hop_length": 160, "n_fft": 400,
    "sampling_rate": 16000, "chunk_length": 2, "n_samples": 32000, "nb_max_frames": 200, "padding_value": 0.0,
}  # fmt: skip


@pytest.fixture
def parts(request: pytest.FixtureRequest) -> Any:
    """The helpers of this folder's conftest."""
    return request.config.pluginmanager.get_plugin(str(Path(__file__).parent / "conftest.py"))


def embedder(output: str = "last_hidden_state") -> GraphBuilder:
    """Vectors (id, 1) of tokens, whatever the mask and types; or their sum as the vector of the text."""
    b = GraphBuilder("embedder")
    ids = b.input("input_ids", "int64", ["batch", "sequence"])
    mask = b.input("attention_mask", "int64", ["batch", "sequence"])
    b.input("token_type_ids", "int64", ["batch", "sequence"])
    rows = b.op(
        "Mul", b.op("Unsqueeze", b.cast(ids, "float32"), [-1]), b.op("Unsqueeze", b.cast(mask, "float32"), [-1])
    )
    states = b.op("Add", b.op("Mul", rows, np.array([1, 0], np.float32)), np.array([0, 1], np.float32))
    if output == "last_hidden_state":
        b.output(output, states, "float32", ["batch", "sequence", 2])
    else:
        b.output(output, b.op("ReduceSum", states, [1], keepdims=0), "float32", ["batch", 2])
    return b


def pooled(path: Path, text: str) -> list[float]:
    """The vector of a text."""
    assert gp.validate(path)[1] == ()
    with gp.load(path) as pipe:
        return [float(value) for value in np.ravel(pipe.run({"prompt": [text]})["embedding"])]


@pytest.mark.parametrize("kind", ["mean", "cls", "max", "last"])
def test_pooling_and_normalising_are_those_of_the_modules(
    folder: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    source = folder("kv")
    embedder().save(source.path / "onnx" / "model.onnx")
    keys = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "last": "lasttoken"}
    modes = {f"pooling_mode_{name}": kind == each for each, name in keys.items()}
    source.json(
        "1_Pooling/config.json", {"word_embedding_dimension": 2, **modes, "pooling_mode_weightedmean_tokens": False}
    )
    types = ("models.Transformer", "models.Pooling", *(("models.Normalize",) if kind == "mean" else ()))
    source.json("modules.json", [{"idx": i, "type": f"sentence_transformers.{name}"} for i, name in enumerate(types)])
    source.json("sentence_bert_config.json", {"max_seq_length": 6, "do_lower_case": False})
    import_optimum(source.path, tmp_path / "made")
    ids = source.package.vocabulary.encode("badcab")
    first = {"mean": np.mean(ids), "cls": ids[0], "max": max(ids), "last": ids[-1]}[kind]
    expected = np.array([first, 1.0]) / (np.hypot(first, 1.0) if kind == "mean" else 1.0)
    assert pooled(tmp_path / "made", "badcabxyz") == pytest.approx(list(expected), abs=1e-5)


def test_a_graph_that_pools_itself(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    embedder("sentence_embedding").save(source.path / "onnx" / "model.onnx")
    import_optimum(source.path, tmp_path / "made")
    ids = source.package.vocabulary.encode("abc")
    assert pooled(tmp_path / "made", "abc") == pytest.approx([sum(ids), len(ids)])


def hearing(mels: int) -> GraphBuilder:
    """``input_features`` -> ``last_hidden_state`` [batch, 3, 1]: what is heard in any sound."""
    b = GraphBuilder("hearing")
    features = b.input("input_features", "float32", ["batch", mels, "frames"])
    nothing = b.op("Mul", b.op("ReduceMean", features, [1, 2], keepdims=1), 0.0)
    states = b.op("Add", nothing, np.array(HEARD, np.float32).reshape(1, -1, 1))
    b.output("last_hidden_state", states, "float32", ["batch", len(HEARD), 1])
    return b


def whisper(folder: Callable[..., Any], parts: Any) -> Any:
    """A source folder with an encoder of sounds and the merged decoder of the closed form."""
    source = folder("cross", captured=True, end_at=6)
    hearing(80).save(source.path / "onnx" / "encoder_model.onnx")
    decoder = parts.renamed(source.tiny(), parts.cross_name)
    source.graph("decoder_model_merged.onnx", parts.with_switch(decoder))
    source.json("preprocessor_config.json", FEATURES)
    never = {"suppress_tokens": [2], "begin_suppress_tokens": [1]}
    source.json("generation_config.json", {"decoder_start_token_id": 0, "eos_token_id": 1, **never})
    return source


def test_a_sound_is_written_down(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = whisper(folder, parts)
    import_optimum(source.path, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    sound = np.sin(np.arange(16000) * 0.1).astype(np.float32) * 0.5
    with gp.load(tmp_path / "made") as pipe:
        heard = pipe.run({"audio": (sound, 16000)})["text"]
    expected = source.package.answer_text(HEARD, 64)
    assert str(heard).strip() == expected.strip()
    assert expected.strip()


def test_the_audio_program_has_the_extractors_numbers(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    source = whisper(folder, parts)
    import_optimum(source.path, tmp_path / "made")
    spec, _ = gp.validate(tmp_path / "made")
    assert spec is not None
    steps = {step.op: step.params for step in spec.programs["log_mel"].steps}
    assert steps["resample"]["rate"] == 16000
    assert steps["window"]["seconds"] == steps["pad"]["seconds"] == 2
    assert {key: steps["log_mel"][key] for key in ("n_fft", "hop", "mels")} == {"n_fft": 400, "hop": 160, "mels": 80}


def test_what_may_not_begin_an_answer_is_kept(folder: Callable[..., Any], parts: Any, tmp_path: Path) -> None:
    import_optimum(whisper(folder, parts).path, tmp_path / "made")
    metadata = (tmp_path / "made" / "inference_metadata.yaml").read_text()
    assert "begin_suppress: [1]" in metadata

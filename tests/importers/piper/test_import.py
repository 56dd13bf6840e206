"""Voices are cut where the vocoder begins; every phoneme of English has ids; what is no such voice is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.piper import import_piper
from genai_pipeline.importers.piper.arpabet import spellings
from genai_pipeline.testing.builder import GraphBuilder

CHANNELS = 4


def voice(path: Path, *, inputs: tuple[str, ...] = ("input", "input_lengths", "scales")) -> None:
    """A graph of the form: ids times the first scale as frames of four equal channels; the wave is twice their sum."""
    graph = GraphBuilder("voice")
    ids = graph.input(inputs[0], "int64", ["batch", "phonemes"])
    lengths = graph.input(inputs[1], "int64", ["batch"])
    scales = graph.input(inputs[2], "float32", [3])
    used = graph.op("Mul", graph.cast(ids, "float32"), graph.cast(graph.op("Unsqueeze", lengths, [1]), "float32"))
    scaled = graph.op("Mul", used, graph.op("Slice", scales, [0], [1], [0]))
    latent = graph.op("Concat", *[graph.op("Unsqueeze", scaled, [1])] * CHANNELS, axis=1)
    weight = graph.const(np.full((1, CHANNELS, 1), 2, np.float32), name="dec.conv_pre.weight")
    wave = graph.op("Conv", latent, weight)
    graph.output("output", graph.op("Unsqueeze", wave, [1]), "float32", ["batch", "time", 1, "samples"])
    graph.save(path)


def config(**changes: Any) -> str:
    symbols = sorted({part for _, text in spellings() for part in text} | set("_^$ .,!?"))
    table = {symbol: [number] for number, symbol in enumerate(symbols)}
    return json.dumps({"num_speakers": 1, "phoneme_type": "espeak", "phoneme_id_map": table, **changes})


def test_both_parts_together_are_the_whole(tmp_path: Path, run_graph: Callable[..., list[Any]]) -> None:
    voice(tmp_path / "voice.onnx")
    (tmp_path / "voice.json").write_text(config(), encoding="utf-8")
    import_piper(tmp_path / "voice.onnx", tmp_path / "voice.json", tmp_path / "package")
    ids, lengths, scales = np.array([[1, 2, 3]]), np.array([3]), np.array([0.5, 1, 1], np.float32)
    package = tmp_path / "package"
    (latent,) = run_graph(package / "acoustic.onnx", phonemes=ids, lengths=lengths, scales=scales)
    (wave,) = run_graph(package / "vocoder.onnx", latent=latent)
    (whole,) = run_graph(tmp_path / "voice.onnx", input=ids, input_lengths=lengths, scales=scales)
    assert latent.shape == (1, CHANNELS, 3)
    assert wave.shape == (1, 1, 3)
    np.testing.assert_array_equal(wave[0, 0], whole[0, 0, 0])
    np.testing.assert_array_equal(wave[0, 0], ids[0] * 3 * 0.5 * CHANNELS * 2)


def test_ids_of_phonemes_carry_stress_before_the_vowel(tmp_path: Path) -> None:
    voice(tmp_path / "voice.onnx")
    (tmp_path / "voice.json").write_text(config(), encoding="utf-8")
    import_piper(tmp_path / "voice.onnx", tmp_path / "voice.json", tmp_path / "package")
    ids = json.loads((tmp_path / "package" / "phoneme_ids.json").read_text(encoding="utf-8"))
    table = json.loads(config())["phoneme_id_map"]
    assert ids["OW1"] == [table[part][0] for part in "ˈoʊ"]
    assert ids["OW2"] == [table[part][0] for part in "ˌoʊ"]
    assert ids["OW0"] == ids["OW"] == [table[part][0] for part in "oʊ"]
    assert ids["AH0"] == table["ə"]
    assert ids["AH1"] == [table[part][0] for part in "ˈʌ"]
    assert ids["ER0"] == table["ɚ"]
    assert ids["CH"] == [table[part][0] for part in "tʃ"]
    assert ids["."] == table["."]
    assert {"^", "$", "_", " "} <= ids.keys()
    assert len(ids) == 24 + 15 * 4 + len("_^$ .,!?")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (config(num_speakers=2), "2 speakers"),
        (config(phoneme_type="text"), "phonemes of the kind 'text'"),
        (config(phoneme_id_map={"a": [1], "_": [0], "^": [2], "$": [3]}), "the voice has no ids for"),
        (config(phoneme_id_map={"a": 1}), "has no 'phoneme_id_map'"),
        ("{", "is not JSON"),
        ("[]", "has no 'phoneme_id_map'"),
    ],
)
def test_settings_of_other_voices_are_refused(tmp_path: Path, text: str, message: str) -> None:
    voice(tmp_path / "voice.onnx")
    (tmp_path / "voice.json").write_text(text, encoding="utf-8")
    with pytest.raises(ImportModelError, match=message):
        import_piper(tmp_path / "voice.onnx", tmp_path / "voice.json", tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_graphs_of_other_forms_are_refused(tmp_path: Path) -> None:
    voice(tmp_path / "voice.onnx", inputs=("ids", "input_lengths", "scales"))
    (tmp_path / "voice.json").write_text(config(), encoding="utf-8")
    with pytest.raises(ImportModelError, match="no voice of one speaker"):
        import_piper(tmp_path / "voice.onnx", tmp_path / "voice.json", tmp_path / "package")

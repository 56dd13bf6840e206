"""The package made of a CTranslate2 model: its graphs compute what Whisper's description says."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.importers.ctranslate2 import import_ctranslate2

Graph = Callable[..., dict[str, Any]]
MELS, FRAMES, LAYERS, HEADS, HEAD_DIM = 8, 12, 2, 2, 16


@pytest.fixture
def graph(run_graph: Callable[..., list[Any]]) -> Callable[[Path], Graph]:
    """A graph as a function from inputs to outputs by name."""

    def load(path: Path) -> Graph:
        names = read_signature(path, path.parent).outputs
        return lambda **inputs: dict(zip(names, run_graph(path, **inputs), strict=True))

    return load


def features(count: int) -> Any:
    return np.random.default_rng(3).normal(0, 1, (count, MELS, FRAMES)).astype(np.float32)


def states(found: dict[str, Any], side: str) -> dict[str, Any]:
    return {name.replace("present", "past_key_values"): found[name] for name in found if f".{side}." in name}


def empty(count: int) -> dict[str, Any]:
    nothing = np.zeros((count, HEADS, 0, HEAD_DIM), np.float32)
    return {f"past_key_values.{i}.decoder.{part}": nothing for i in range(LAYERS) for part in ("key", "value")}


def step(graph: Graph, tokens: Sequence[Sequence[int]], start: int, past: dict[str, Any], cross: dict[str, Any]) -> Any:
    ids = np.array(tokens)
    places = np.broadcast_to(np.arange(start, start + ids.shape[1]), ids.shape)
    mask = np.ones((len(ids), start + ids.shape[1]), np.int64)
    return graph(input_ids=ids, position_ids=places.copy(), attention_mask=mask, **past, **cross)


def test_the_encoder_gives_hidden_states_and_the_cross_cache(
    imported: Callable[[str], Path], reference: Any, graph: Any
) -> None:
    given = features(2)
    found = graph(imported("float32") / "encoder.onnx")(input_features=given)
    for row in range(2):
        hidden = reference.encode(given[row])
        np.testing.assert_allclose(found["last_hidden_state"][row], hidden, atol=1e-5)
        for layer in range(LAYERS):
            for part, expected in zip(("key", "value"), reference.cross_state(layer, hidden), strict=True):
                np.testing.assert_allclose(found[f"present.{layer}.encoder.{part}"][row], expected, atol=1e-5)


def test_the_decoder_gives_the_logits_of_any_chunks(
    imported: Callable[[str], Path], reference: Any, graph: Any
) -> None:
    folder, given, tokens = imported("float32"), features(1), [10, 3, 8, 1, 0, 5, 12]
    found = graph(folder / "encoder.onnx")(input_features=given)
    decoder, cross = graph(folder / "decoder.onnx"), states(found, "encoder")
    expected = reference.logits(tokens, reference.encode(given[0]))
    past, logits, start = empty(1), [], 0
    for stop in (3, 5, 6, 7):
        got = step(decoder, [tokens[start:stop]], start, past, cross)
        logits.append(got["logits"][0])
        past, start = states(got, "decoder"), stop
    np.testing.assert_allclose(np.concatenate(logits), expected, atol=2e-5)


def test_rows_of_a_batch_are_those_of_single_runs(imported: Callable[[str], Path], reference: Any, graph: Any) -> None:
    folder, given = imported("float32"), features(2)
    found = graph(folder / "encoder.onnx")(input_features=given)
    got = step(graph(folder / "decoder.onnx"), [[10, 3, 8], [10, 7, 2]], 0, empty(2), states(found, "encoder"))
    for row, tokens in enumerate(([10, 3, 8], [10, 7, 2])):
        expected = reference.logits(tokens, reference.encode(given[row]))
        np.testing.assert_allclose(got["logits"][row], expected, atol=2e-5)


def test_the_fast_precision_is_near_and_keeps_the_encoder(
    imported: Callable[[str], Path], reference: Any, graph: Any
) -> None:
    exact, fast, given, tokens = imported("float32"), imported("fast"), features(1), [10, 3, 8]
    assert (exact / "encoder.onnx.data").read_bytes() == (fast / "encoder.onnx.data").read_bytes()
    found = graph(fast / "encoder.onnx")(input_features=given)
    got = step(graph(fast / "decoder.onnx"), [tokens], 0, empty(1), states(found, "encoder"))["logits"][0]
    expected = reference.logits(tokens, reference.encode(given[0]))
    assert 1e-5 < np.abs(got - expected).max() < 0.05 * np.abs(expected).max()


def test_the_same_files_make_the_same_package(tiny_whisper: Any, tmp_path: Path) -> None:
    source = tiny_whisper.write(tmp_path / "source")
    digests = []
    for name in ("first", "second"):
        folder = import_ctranslate2(source, tmp_path / name, name="same")
        digests.append({p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()})
    assert digests[0] == digests[1]
    assert {"encoder.onnx", "decoder.onnx", "tokenizer.json", "inference_metadata.yaml"} < digests[0].keys()


def test_the_tokenizer_gets_the_timestamps(imported: Callable[[str], Path], tiny_whisper: Any) -> None:
    definition = json.loads((imported("float32") / "tokenizer.json").read_text())
    known = {token["content"]: token["id"] for token in definition["added_tokens"] if token["special"]}
    assert known["<|0.00|>"] == tiny_whisper.tokens.index("<|0.00|>")
    assert known["<|0.08|>"] == len(tiny_whisper.tokens) - 1


def test_the_metadata_names_what_is_never_chosen(imported: Callable[[str], Path]) -> None:
    text = (imported("float32") / "inference_metadata.yaml").read_text()
    assert '[a, "<|endoftext|>", "<|notimestamps|>"]' in text
    assert 'begin_suppress: [b, "<|endoftext|>"]' in text
    assert "limits: {context_length: 16}" in text
    assert "mels: 8" in text


def test_a_configuration_that_names_no_first_tokens_leaves_them_free(tiny_whisper: Any, tmp_path: Path) -> None:
    source = dataclasses.replace(tiny_whisper, config={"suppress_ids": []}).write(tmp_path / "source")
    text = (import_ctranslate2(source, tmp_path / "made") / "inference_metadata.yaml").read_text()
    assert "begin_suppress" not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": ["a"]}, "lists 1 tokens, the model has rows for 20"),
        ({"config": {"suppress_ids": [99]}}, "suppress_ids is no list of token ids"),
        ({"config": {"suppress_ids_begin": "a"}}, "suppress_ids_begin is no list of token ids"),
    ],
)
def test_files_that_do_not_fit_together(tiny_whisper: Any, tmp_path: Path, changes: Any, message: str) -> None:
    source = dataclasses.replace(tiny_whisper, **changes).write(tmp_path / "source")
    with pytest.raises(ImportModelError, match=message):
        import_ctranslate2(source, tmp_path / "made", name="made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["model.bin", "config.json", "tokenizer.json", "vocabulary.txt"])
def test_a_file_that_is_missing(tiny_whisper: Any, tmp_path: Path, name: str) -> None:
    source = tiny_whisper.write(tmp_path / "source")
    (source / name).unlink()
    with pytest.raises(ImportModelError, match=f"the model has no .*{name}.*; its files are: ") as refused:
        import_ctranslate2(source, tmp_path / "made", name="made")
    assert "converter" in refused.value.hint


def test_tokens_that_differ(tiny_whisper: Any, tmp_path: Path) -> None:
    tokens = ["b", "a", *tiny_whisper.tokens[2:]]
    source = dataclasses.replace(tiny_whisper, tokens=tokens).write(tmp_path / "source")
    with pytest.raises(ImportModelError, match=r"differs from vocabulary\.txt in token 0"):
        import_ctranslate2(source, tmp_path / "made", name="made")


def test_a_precision_and_a_source_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="is no folder"):
        import_ctranslate2(tmp_path / "absent", tmp_path / "made")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImportModelError, match="unknown precision"):
        import_ctranslate2(tmp_path / "empty", tmp_path / "made", precision="half")

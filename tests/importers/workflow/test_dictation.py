"""Whisper documents: bands and windows from the ports, marks from the tokenizer; what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.graph.signature import Dim
from genai_pipeline.importers.workflow import import_workflow
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import metadata_text, write_graph

MARKS = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", "<|0.00|>", "<|1.00|>", "<|2.00|>")
WIDTH, PLACES = 4, 64


def _encoder(path: Path, rows: Dim, bands: Dim) -> None:
    graph = GraphBuilder()
    features = graph.input("input_features", "float32", ["batch", bands, "frames"])
    weights = graph.const(np.zeros((80, WIDTH), np.float32))
    made = graph.op("MatMul", graph.op("Transpose", features, perm=[0, 2, 1]), weights)
    graph.output("encoder_hidden_states", made, "float32", ["batch", rows, WIDTH])
    write_graph(path, graph)


def _decoder(path: Path, words: int) -> None:
    graph = GraphBuilder()
    tokens = graph.input("decoder_input_ids", "int64", ["batch", "sequence"])
    states = graph.input("encoder_hidden_states", "float32", ["batch", "source", WIDTH])
    positions = graph.input("position_ids", "int64", ["batch", "sequence"])
    past = graph.input("past_key_values.0.key", "float32", ["batch", 1, "past", WIDTH])
    table = graph.const(np.zeros((PLACES, WIDTH), np.float32))
    rows = graph.op(
        "Add",
        graph.op("Gather", table, positions),
        graph.cast(graph.op("Unsqueeze", tokens, graph.const([2])), "float32"),
    )
    rows = graph.op("Add", rows, graph.op("ReduceMean", states, graph.const([1])))
    new = graph.op("Unsqueeze", rows, graph.const([1]))
    graph.output(
        "logits",
        graph.op("MatMul", rows, graph.const(np.zeros((WIDTH, words), np.float32))),
        "float32",
        ["batch", "sequence", words],
    )
    graph.output("present.0.key", graph.op("Concat", past, new, axis=2), "float32", ["batch", 1, "total", WIDTH])
    write_graph(path, graph)


def _folder(folder: Path, rows: Dim = 100, bands: Dim = 80, marks: Sequence[str] = MARKS) -> Path:
    """A folder with a document of the older form."""
    for part in ("encoder", "decoder"):
        (folder / part).mkdir(parents=True)
    words = {f"w{index}": index for index in range(10)}
    added = [
        {
            "id": 10 + index,
            "content": text,
            "special": True,
            "normalized": False,
            "lstrip": False,
            "rstrip": False,
            "single_word": False,
        }
        for index, text in enumerate(marks)
    ]
    tokenizer = {"model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    _encoder(folder / "encoder" / "model.onnx", rows, bands)
    _decoder(folder / "decoder" / "model.onnx", len(words) + len(marks))
    models = {name: {"filename": f"{name}/model.onnx", "type": name} for name in ("encoder", "decoder")}
    edge = {"from": "encoder.encoder_hidden_states", "to": "decoder.encoder_hidden_states"}
    document = {
        "model": {"io": {}},
        "pipeline": {"models": models, "dataflow": [edge], "strategy": {"kind": "composite"}},
    }
    (folder / METADATA_FILE).write_text(metadata_text(document), encoding="utf-8")
    return folder


def test_ports_and_marks_say_what_the_document_does_not(tmp_path: Path) -> None:
    import_workflow(_folder(tmp_path / "source"), tmp_path / "made")
    spec, problems = gp.validate(tmp_path / "made")
    assert problems == ()
    assert spec is not None
    text = (tmp_path / "made" / METADATA_FILE).read_text()
    assert "window: {seconds: 2," in text
    assert "80" in text.partition("log_mel: {")[2].partition("}")[0]
    assert f"limits: {{context_length: {PLACES}}}" in text
    assert all(mark in text.partition("times: {")[2] for mark in ("<|0.00|>", "<|2.00|>"))
    prompt = text.partition("prompt: {template: ")[2].partition("\n")[0]
    assert "<|startoftranscript|>" in prompt
    assert "not parameters.timestamps" in prompt


def test_windows_are_half_a_minute_where_the_encoder_leaves_them_open(tmp_path: Path) -> None:
    import_workflow(_folder(tmp_path / "source", rows="rows"), tmp_path / "made")
    assert "window: {seconds: 30," in (tmp_path / "made" / METADATA_FILE).read_text()


@pytest.mark.parametrize(
    ("rows", "bands", "message"),
    [(70, 80, "70 rows, which are no whole seconds of sound"), (100, "bands", "leaves the number of bands open")],
)
def test_sizes_that_fit_no_features_are_refused(tmp_path: Path, rows: Dim, bands: Dim, message: str) -> None:
    with pytest.raises(ImportRefusedError, match=message):
        import_workflow(_folder(tmp_path / "source", rows, bands), tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_without_the_mark_of_the_family_the_start_is_open(tmp_path: Path) -> None:
    with pytest.raises(ImportRefusedError, match="decoder_start_token_id: missing"):
        import_workflow(_folder(tmp_path / "source", marks=("<|endoftext|>",)), tmp_path / "made")

"""A sliding window that a document declares: what the graph has of it, and what the context becomes without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.graph_facts import read_facts
from genai_pipeline.importers.structure.parts import read_part
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.importers.workflow.document import DOCUMENT, Document
from genai_pipeline.importers.workflow.windows import within_window
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import write_graph

WINDOW = 8


def _context(folder: Path, number: int | None, known: int | None = 100) -> tuple[int | None, str]:
    """The context of a decoder whose graph computes with a number, and the report."""
    graph = GraphBuilder()
    tokens = graph.input("input_ids", "int64", ["batch", "sequence"])
    rows = graph.cast(tokens, "float32")
    if number is not None:
        rows = graph.op("Sub", rows, graph.const(float(number), "float32"))
    graph.output("logits", graph.op("Unsqueeze", rows, graph.const([2], "int64")), "float32", ["batch", "sequence", 1])
    write_graph(folder / "model.onnx", graph)
    root = ConfigNode(DOCUMENT, "", {"model": {"attention": {"sliding_window": WINDOW}}})
    document, report = Document(root, "model.io", {"decoder": "model.onnx"}), ImportReport()
    part = read_part(read_facts(folder, "model.onnx"), None)
    texts = within_window(SourceFolder(folder), document, [part], Texts(context=known), report)
    return texts.context, report.text()


@pytest.mark.parametrize("number", [WINDOW, WINDOW - 1, -WINDOW, 1 - WINDOW])
def test_a_graph_that_computes_with_the_window_has_it(tmp_path: Path, number: int) -> None:
    context, report = _context(tmp_path, number)
    assert context == 100
    assert "the graph computes with it" in report


@pytest.mark.parametrize(("number", "known"), [(None, 100), (WINDOW + 1, 100), (None, None)])
def test_without_the_window_no_longer_texts_are_taken(tmp_path: Path, number: int | None, known: int | None) -> None:
    context, report = _context(tmp_path, number, known)
    assert context == WINDOW
    assert "longer texts would be read otherwise" in report


def test_a_context_below_the_window_stays(tmp_path: Path) -> None:
    assert _context(tmp_path, None, 5)[0] == 5

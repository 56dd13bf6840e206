"""``model.attention.sliding_window`` against the graph: an export may declare a window that its attention lacks.

A graph has the window when an attention operator says it, or when it computes with a number of that size (a mask that
is built inside). Otherwise texts up to the window are read alike either way, and longer ones are not: so the package
takes no longer ones.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from genai_pipeline.graph.onnx_file import read_outline
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.parts import Part
from genai_pipeline.importers.structure.texts import Texts
from genai_pipeline.importers.workflow.document import DOCUMENT, Document

if TYPE_CHECKING:
    import onnx

_KEY = "sliding_window"
# TensorProto.DataType -> how a number of it lies in raw_data: float32, int32, int64.
_FORMATS = {1: "<f", 6: "<i", 7: "<q"}


def within_window(
    folder: SourceFolder, document: Document, parts: Iterable[Part], texts: Texts, report: ImportReport
) -> Texts:
    """The texts with a context in which a declared window that the decoder's graph lacks makes no difference."""
    attention = document.root.mapping("model").mapping("attention")
    if _KEY not in attention:
        return texts
    size = attention.integer(_KEY, least=1)
    decoders = [part for part in parts if part.kind == "decoder"]
    if any(size in part.facts.signature.windows.values() for part in decoders):
        report.dropped(DOCUMENT, attention.at(_KEY), "the graph's attention operators have it")
        return texts
    sizes = {sign * (size - less) for sign in (1, -1) for less in (0, 1)}
    for part in decoders:
        graph = read_outline(folder.path / part.facts.file, folder.path).graph
        if any(number in sizes for number in _numbers(graph)):
            report.dropped(DOCUMENT, attention.at(_KEY), "the graph computes with it")
            return texts
    why = f"limits.context_length: {size}, as the graph attends to every token and longer texts would be read otherwise"
    report.mapped(DOCUMENT, attention.at(_KEY), why)
    return replace(texts, context=min(texts.context or size, size))


def _numbers(graph: onnx.GraphProto) -> Iterator[float]:
    """Single numbers that a graph computes with."""
    yield from (number for tensor in graph.initializer if (number := _number(tensor)) is not None)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _numbers(attribute.g)
            if node.op_type != "Constant":
                continue
            if attribute.name in ("value_int", "value_float"):
                yield attribute.i if attribute.name == "value_int" else attribute.f
            elif attribute.HasField("t") and (number := _number(attribute.t)) is not None:
                yield number


def _number(tensor: onnx.TensorProto) -> float | None:
    """The number of a tensor that has one and holds it itself."""
    layout = _FORMATS.get(tensor.data_type)
    if layout is None or list(tensor.dims) not in ([], [1]):
        return None
    if len(tensor.raw_data) == struct.calcsize(layout):
        return float(struct.unpack(layout, tensor.raw_data)[0])
    found = [*tensor.float_data, *tensor.int32_data, *tensor.int64_data]
    return float(found[0]) if len(found) == 1 else None

"""What the kernels of ONNX Runtime refuse only when they run, found in the graph before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from genai_pipeline.graph.onnx_file import read_outline
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.parts import Part

if TYPE_CHECKING:
    import onnx

_FUSED: Final = "GroupQueryAttention"
_COSINES, _ROTARY = 7, "do_rotary"  # its input with the table of angles, and the attribute that switches them on
_STEP: Final = 8  # angles of a head come in such steps, two channels each
_HINT: Final = "export the graph with portable operators (for mobius-onnx: without --ep)"


def check_kernels(folder: SourceFolder, parts: Iterable[Part], report: ImportReport) -> None:
    """Refuse attention that turns a number of channels which its kernel does not take."""
    for part in parts:
        graph = read_outline(folder.path / part.facts.file, folder.path).graph
        for angles in sorted(set(_narrow(graph))):
            why = f"{_FUSED} turns {2 * angles} channels of a head, and its kernel only multiples of {2 * _STEP}"
            report.refused(part.facts.file, _FUSED, why, _HINT)


def _narrow(graph: onnx.GraphProto) -> Iterator[int]:
    """Angles of a head, of each attention whose kernel does not take so many."""
    widths = {tensor.name: tensor.dims[-1] for tensor in graph.initializer if tensor.dims}
    for node in graph.node:
        if node.op_type != _FUSED or len(node.input) <= _COSINES or not _is_on(node):
            continue
        angles = widths.get(node.input[_COSINES])
        if angles is not None and angles % _STEP:
            yield angles


def _is_on(node: onnx.NodeProto) -> bool:
    return any(attribute.name == _ROTARY and attribute.i for attribute in node.attribute)

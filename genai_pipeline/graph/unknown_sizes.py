"""Sizes that a graph leaves open under a name that says nothing, such as ``?``: two of them need not be equal.

Some exporters write ``?`` for each size that they do not know. A runtime that holds symbols of one name to one size
would refuse a picture that is no square.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.signature import size_name

if TYPE_CHECKING:
    import onnx_ir as ir


def forget_unknown_sizes(model: ir.Model) -> int:
    """Take such names from all values of the main graph, in place; gives how many there were."""
    return sum(map(_forget, _values(model.graph)))


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _forget(value: ir.Value) -> int:
    if value.shape is None:
        return 0
    old = [dim if isinstance(dim, int) else dim.value for dim in value.shape]
    new = [dim if isinstance(dim, int) else size_name(dim or "") or None for dim in old]
    found = sum(one is not other for one, other in zip(old, new, strict=True))
    if found:
        value.shape = onnx_file.ir.Shape(new)
    return found

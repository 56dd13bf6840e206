"""Moves the batch axis of a graph's ports to the front, where rows of several requests can be joined and split.

Recurrent graphs are often exported with states of shape ``[layers, batch, size]``. The graph gets a transposition at
each such port and stays as it is inside, so it computes exactly the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.errors import ImportModelError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.onnx_file import model_bytes, read_model

if TYPE_CHECKING:
    import onnx_ir


def move_batch_first(source: Path, target: Path, axes: Mapping[str, int]) -> None:
    """Copy a model whose weights are in its own file; ``axes``: the axis that is the batch axis now, by port.

    Raises ImportModelError for a port that the graph does not have, or that has no such axis.
    """
    model = read_model(source, source.parent, {})
    inputs = {value.name: index for index, value in enumerate(model.graph.inputs)}
    outputs = {value.name: index for index, value in enumerate(model.graph.outputs)}
    for port, axis in axes.items():
        if port in inputs:
            _input_first(model.graph, inputs[port], axis)
        elif port in outputs:
            _output_first(model.graph, outputs[port], axis)
        else:
            raise ImportModelError(f"{source.name} has no port '{port}'")
    target.write_bytes(model_bytes(model, ""))


def _input_first(graph: onnx_ir.Graph, index: int, axis: int) -> None:
    inner = graph.inputs[index]
    outer = _outer(inner, axis)
    graph.inputs[index] = outer
    rank = len(outer.shape or ())
    back = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    node = onnx_file.ir.Node(
        "", "Transpose", [outer], attributes=[onnx_file.ir.AttrInt64s("perm", back)], name=f"{outer.name}_axis"
    )
    inner.replace_all_uses_with(node.outputs[0])
    node.outputs[0].name = f"{outer.name}_inside"
    graph.insert_before(graph[0], node)


def _output_first(graph: onnx_ir.Graph, index: int, axis: int) -> None:
    inner = graph.outputs[index]
    outer = _outer(inner, axis)
    rank = len(outer.shape or ())
    node = onnx_file.ir.Node(
        "",
        "Transpose",
        [inner],
        outputs=[outer],
        attributes=[onnx_file.ir.AttrInt64s("perm", _first(axis, rank))],
        name=f"{outer.name}_axis",
    )
    inner.name = f"{outer.name}_inside"
    graph.append(node)
    graph.outputs[index] = outer


def _outer(inner: onnx_ir.Value, axis: int) -> onnx_ir.Value:
    """The port as it will be seen from outside."""
    if inner.shape is None or not 0 < axis < len(inner.shape):
        raise ImportModelError(f"the port '{inner.name}' has no axis {axis} to move to the front")
    dims = [inner.shape[place] for place in _first(axis, len(inner.shape))]
    return onnx_file.ir.Value(name=inner.name, shape=onnx_file.ir.Shape(dims), type=inner.type)


def _first(axis: int, rank: int) -> list[int]:
    return [axis, *range(axis), *range(axis + 1, rank)]

"""The nodes of a model one by one, each as a model of its own: to ask a runtime what it has kernels for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genai_pipeline.graph import onnx_file

if TYPE_CHECKING:
    import onnx_ir as ir

_UNTOLD = "float32"  # the dtype of values whose own is not known


@dataclass(frozen=True, slots=True)
class LoneNode:
    """A node: its name in its own model, and a model of nothing else.

    ``nested``: whether it lies in a subgraph or function; ``told``: whether dtype and rank of all it reads are known.
    """

    name: str
    nested: bool
    told: bool
    serialized: bytes


def lone_nodes(model: ir.Model) -> Iterator[LoneNode]:
    """One node for each operator of a model, subgraphs and functions included; none that has subgraphs itself.

    Nested ones come first: which of them run depends on what is fed.
    """
    found: dict[tuple[str, str], tuple[ir.Node, bool]] = {}
    for node, nested in sorted(_nodes(model), key=lambda item: not item[1]):
        if node.op_identifier() not in model.functions and not _has_graph(node):
            found.setdefault((node.domain, node.op_type), (node, nested))
    for node, nested in found.values():
        told = all(value is None or (value.type is not None and value.shape is not None) for value in node.inputs)
        yield LoneNode(str(node.name or ""), nested, told, _alone(node, model))


def nodes_named(model: ir.Model, op_type: str) -> Iterator[tuple[str, tuple[tuple[int, ...], ...]]]:
    """The name of each node of an operator, subgraphs included, with the shapes of the weights it reads."""
    for node, _ in _nodes(model):
        if node.op_type == op_type:
            weights = [value.const_value for value in node.inputs if value is not None]
            yield str(node.name or ""), tuple(tuple(w.shape.numpy()) for w in weights if w is not None)


def _nodes(model: ir.Model) -> Iterator[tuple[ir.Node, bool]]:
    walk = onnx_file.ir.traversal.RecursiveGraphIterator
    for node in walk(model.graph):
        yield node, node.graph is not model.graph
    for function in model.functions.values():
        for node in walk(function):
            yield node, True


def _has_graph(node: ir.Node) -> bool:
    kinds = onnx_file.ir.AttributeType
    return any(attribute.type in (kinds.GRAPH, kinds.GRAPHS) for attribute in node.attributes.values())


def _alone(node: ir.Node, model: ir.Model) -> bytes:
    ir_ = onnx_file.ir
    inputs = {value: _like(value, f"in_{place}") for place, value in enumerate(node.inputs) if value is not None}
    attributes = [attribute for attribute in node.attributes.values() if not attribute.is_ref()]
    taken = [None if value is None else inputs[value] for value in node.inputs]
    alone = ir_.Node(node.domain, node.op_type, taken, attributes, name=node.name, num_outputs=len(node.outputs))
    for place, (made, old) in enumerate(zip(alone.outputs, node.outputs, strict=True)):
        like = _like(old, f"out_{place}")
        made.name, made.type = like.name, like.type
    graph = ir_.Graph(list(inputs.values()), alone.outputs, nodes=[alone], opset_imports=model.opset_imports, name="g")
    serialized: bytes = ir_.serde.serialize_model(ir_.Model(graph, ir_version=model.ir_version)).SerializeToString()
    return serialized


def _like(value: ir.Value, name: str) -> ir.Value:
    ir_ = onnx_file.ir
    kind = value.type if value.type is not None else ir_.TensorType(onnx_file.element_type(_UNTOLD))
    return ir_.Value(name=name, type=kind, shape=value.shape)

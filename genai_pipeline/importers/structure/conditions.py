"""Conditions of a graph that an input decides, such as the switch of a merged decoder between its two decoders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_SAME_TRUTH = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})
_SAME_VALUE = frozenset({"Cast", "Identity"})
# Attention in which no token sees a later one, however many are new: by its type, or where an attribute says so.
_CAUSAL = frozenset({"GroupQueryAttention"})
_CAUSAL_IF = frozenset({"is_causal", "unidirectional"})

_Cond = tuple[str, bool]  # an input, and whether its truth is turned round
_Makers = Mapping[str, "onnx.NodeProto"]


@dataclass(frozen=True, slots=True)
class Switch:
    """What an input chooses. ``false_reads``: inputs of the graph that the branch for false depends on;
    ``true_causal``: outputs that the branch for true writes with attention that is causal by its definition."""

    false_reads: frozenset[str]
    true_causal: frozenset[str]


def find_switches(graph: onnx.GraphProto) -> dict[str, Switch]:
    """The inputs that decide conditions of the graph, alone; of several conditions on one input all count."""
    makers = _makers(graph)
    inputs = frozenset(port.name for port in graph.input)
    found: dict[str, Switch] = {}
    for node in graph.node:
        decided = _decided(node, makers, inputs) if node.op_type == "If" else None
        if decided is None:
            continue
        name, turned = decided
        branches = {attribute.name: attribute.g for attribute in node.attribute}
        true, false = branches["then_branch"], branches["else_branch"]
        if turned:
            true, false = false, true
        known = found.get(name, Switch(frozenset(), frozenset()))
        reads = known.false_reads | _inputs_behind(_outer_reads(false), makers, inputs)
        found[name] = Switch(reads, known.true_causal | _causal_of(node, true, graph))
    return found


def causal_outputs(graph: onnx.GraphProto) -> frozenset[str]:
    """Outputs of the graph that causal attention writes, outside conditions."""
    makers = _makers(graph)
    return frozenset(port.name for port in graph.output if _is_causal(_maker(port.name, makers)))


def _decided(node: onnx.NodeProto, makers: _Makers, inputs: frozenset[str]) -> _Cond | None:
    """The input that decides a condition."""
    name, turned = node.input[0], False
    while name not in inputs:
        maker = makers.get(name)
        if maker is None or not (maker.op_type == "Not" or maker.op_type in _SAME_TRUTH):
            return None
        turned ^= maker.op_type == "Not"
        name = maker.input[0]
    return name, turned


def _causal_of(node: onnx.NodeProto, branch: onnx.GraphProto, graph: onnx.GraphProto) -> frozenset[str]:
    """Outputs of the graph that a branch writes with causal attention."""
    makers, inner = _makers(graph), _makers(branch)
    written = {
        outer: _is_causal(_maker(port.name, inner)) for outer, port in zip(node.output, branch.output, strict=True)
    }
    return frozenset(port.name for port in graph.output if written.get(_origin(port.name, makers), False))


def _is_causal(node: onnx.NodeProto | None) -> bool:
    if node is None:
        return False
    return node.op_type in _CAUSAL or any(a.name in _CAUSAL_IF and a.i == 1 for a in node.attribute)


def _makers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    return {output: node for node in graph.node for output in node.output if output}


def _origin(name: str, makers: _Makers) -> str:
    """The value that another one is a copy of."""
    while (node := makers.get(name)) is not None and node.op_type in _SAME_VALUE:
        name = node.input[0]
    return name


def _maker(name: str, makers: _Makers) -> onnx.NodeProto | None:
    return makers.get(_origin(name, makers))


def _outer_reads(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that a branch takes from the graph around it."""
    own = {*_makers(graph), *(tensor.name for tensor in graph.initializer)}
    read = [output.name for output in graph.output]
    for node in graph.node:
        read += node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read += _outer_reads(attribute.g)
    return (name for name in read if name and name not in own)


def _inputs_behind(names: Iterator[str], makers: _Makers, inputs: frozenset[str]) -> frozenset[str]:
    """The graph's inputs that values depend on."""
    found, todo, seen = set(), list(names), set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in inputs:
            found.add(name)
        elif name in makers:
            todo += makers[name].input
            todo += [inner for a in makers[name].attribute if a.HasField("g") for inner in _outer_reads(a.g)]
    return frozenset(found)

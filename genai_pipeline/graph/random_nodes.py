"""Nodes that draw random numbers inside a graph: which ones a model has, and which cannot be made to repeat.

A runtime draws them from a generator of its own, so the same request would give another answer each time, and a seeded
one another answer with every run before it. Where possible they are lifted (``lifted_noise``): their numbers then
follow from an input. ``RandomNode.fault`` says why one cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx

DRAWS: Final = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
_RUNTIME_DRAWS: Final = frozenset({"BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Sampling"})
_RUNTIME_DOMAIN: Final = "com.microsoft"
_STANDARD_DOMAINS: Final = ("", "ai.onnx")
RANDOM_SEED: Final = "random_seed"  # the input that lifted numbers follow from
OLDEST_OPSET: Final = 11  # has Range and BitShift, which the lifted form needs
_DROPOUT_INPUTS: Final = 12  # from this opset on, training is an input


@dataclass(frozen=True, slots=True)
class RandomNode:
    """A node that draws random numbers; ``fault``: why it cannot be lifted, empty where it can be."""

    name: str  # the node's, else of its first output
    op_type: str
    seeded: bool  # its numbers do not depend on a request's seed
    fault: str = ""

    def __str__(self) -> str:
        return f"'{self.name}' ({self.op_type})"


def random_nodes(model: onnx.ModelProto) -> tuple[RandomNode, ...]:
    """Every node of a model that draws random numbers, in functions and subgraphs too."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD_DOMAINS), 0)
    constants = _Constants(model.graph)
    fault = _lifting_fault(model.graph, opset)
    found = [_described(node, fault) for node in model.graph.node if _draws(node, opset, constants)]
    inner = "it stands in a branch or a loop inside the graph"
    found += [_described(node, inner) for node in _subgraph_nodes(model.graph.node) if _draws(node, opset, constants)]
    for function in model.functions:
        nodes = [*function.node, *_subgraph_nodes(function.node)]
        inside = f"it stands in the function '{function.name}'"
        found += [_described(node, inside) for node in nodes if _draws(node, opset, constants)]
    return tuple(found)


def _lifting_fault(graph: onnx.GraphProto, opset: int) -> str:
    """Why nothing in a graph can be lifted, if so."""
    if opset < OLDEST_OPSET:
        return f"the graph has opset {opset}; opset {OLDEST_OPSET} or later is needed"
    taken = any(value.name == RANDOM_SEED for value in graph.input)
    return f"the graph has an input '{RANDOM_SEED}' of its own" if taken else ""


def _described(node: onnx.NodeProto, fault: str) -> RandomNode:
    own = ""
    if node.op_type in _RUNTIME_DRAWS:
        own = "it draws inside an operator of the runtime's own"
    elif node.op_type == "Dropout":
        own = "dropout belongs to training; export the model in inference mode"
    seeded = any(attribute.name == "seed" for attribute in node.attribute)
    return RandomNode(node.name or node.output[0], node.op_type, seeded, own or fault)


def _draws(node: onnx.NodeProto, opset: int, constants: _Constants) -> bool:
    if node.domain == _RUNTIME_DOMAIN:
        return node.op_type in _RUNTIME_DRAWS
    if node.domain not in _STANDARD_DOMAINS:
        return False
    return node.op_type in DRAWS or (node.op_type == "Dropout" and _trains(node, opset, constants))


def _trains(node: onnx.NodeProto, opset: int, constants: _Constants) -> bool:
    """Whether a dropout may drop anything: it does so only when told that it is training."""
    if opset < _DROPOUT_INPUTS or len(node.input) < 3 or not node.input[2]:
        return False
    return not constants.is_false(node.input[2])


class _Constants:
    """Scalars that are fixed in a graph."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph

    def is_false(self, name: str) -> bool:
        """Whether a boolean is known to be false."""
        tensors = [tensor for tensor in self._graph.initializer if tensor.name == name]
        for node in self._graph.node:
            if node.op_type == "Constant" and name in node.output:
                tensors += [attribute.t for attribute in node.attribute if attribute.name == "value"]
        return any(not any(tensor.raw_data) and not any(tensor.int32_data) for tensor in tensors)


def _subgraph_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.node
                yield from _subgraph_nodes(graph.node)

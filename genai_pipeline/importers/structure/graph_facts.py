"""One graph as recognition sees it: its signature, which nodes read its inputs, and which write its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from genai_pipeline.graph.onnx_file import read_outline, signature_of
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.importers.structure.conditions import Switch, causal_outputs, find_switches

if TYPE_CHECKING:
    import onnx

Reader = tuple[str, int]  # the type of a node and the index of its input
_SAME_VALUE = frozenset({"Cast", "Identity"})
_DEPTH = 8  # of If nodes in If nodes


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """``readers``: input -> nodes that read it; ``writers``: output -> types of the nodes that write it, of every
    branch. Both look through casts. An output that is an input as it is has the writer "". ``unread``: inputs that
    nothing reads and that come back in no output; a graph that reads none at all says nothing by that. ``switches``:
    inputs that choose between branches; ``causal``: outputs of attention outside branches that no later token is in."""

    file: str
    signature: GraphSignature
    readers: Mapping[str, frozenset[Reader]] = field(default_factory=dict)
    writers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    switches: Mapping[str, Switch] = field(default_factory=dict)
    causal: frozenset[str] = frozenset()

    @property
    def inputs(self) -> Mapping[str, Port]:
        """The inputs by name."""
        return self.signature.inputs

    @property
    def outputs(self) -> Mapping[str, Port]:
        """The outputs by name."""
        return self.signature.outputs


def read_facts(folder: Path, file: str) -> GraphFacts:
    """The facts of an ONNX file in ``folder``, without its weights. Raises GraphFileError."""
    model = read_outline(folder / file, folder)
    signature = signature_of(model)
    readers: dict[str, set[Reader]] = {}
    for reader, name in _reads(model.graph):
        readers.setdefault(name, set()).add(reader)
    return GraphFacts(
        file,
        signature,
        {name: frozenset(found) for name, found in readers.items() if name in signature.inputs},
        {name: _writers(model.graph, name, frozenset(signature.inputs), 0) for name in signature.outputs},
        _unread(model.graph, frozenset(signature.inputs)),
        find_switches(model.graph),
        causal_outputs(model.graph),
    )


def _unread(graph: onnx.GraphProto, inputs: frozenset[str]) -> frozenset[str]:
    named = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    named.update(name for _, name in _reads(graph))  # also inside branches
    return inputs - named if inputs & named else frozenset()


def _reads(graph: onnx.GraphProto) -> Iterator[tuple[Reader, str]]:
    """Who reads which value, casts taken away; a branch reads values of the graph around it by their names."""
    source: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in _SAME_VALUE and node.input and node.output:
            source[node.output[0]] = source.get(node.input[0], node.input[0])
            continue
        for index, name in enumerate(node.input):
            yield (node.op_type, index), source.get(name, name)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from ((reader, source.get(name, name)) for reader, name in _reads(attribute.g))


def _writers(graph: onnx.GraphProto, name: str, inputs: frozenset[str], depth: int) -> frozenset[str]:
    """The types of the nodes that write a value, of each branch of a condition."""
    makers = {output: node for node in graph.node for output in node.output if output}
    for _ in graph.node:
        node = makers.get(name)
        if node is None:
            break
        if node.op_type == "If" and depth < _DEPTH:
            index = list(node.output).index(name)
            branches = [a.g for a in node.attribute if a.HasField("g") and index < len(a.g.output)]
            found = (_writers(branch, branch.output[index].name, inputs, depth + 1) for branch in branches)
            return frozenset().union(*found)
        if node.op_type not in _SAME_VALUE or not node.input:
            return frozenset({node.op_type})
        name = node.input[0]
    return frozenset({""}) if name in inputs or depth else frozenset()

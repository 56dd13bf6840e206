"""The scopes of a package as networkx graphs: one DiGraph per scope, loops nested by stage nodes that have a body.

Nodes of a scope's graph, told apart by the attribute ``kind``:

| node | kind | attributes |
|---|---|---|
| ``stage:ID`` | run, op, decode, iterate, group | ``label``, ``component`` or ``op``, ``body``, ``for_each`` |
| ``value:KEY`` | value | ``label``, ``origin``, ``type``, ``dtype``, ``shape``, ``scope``, ``produced_by`` |
| ``choice`` | choice | the choice of the next token, in a decode loop |
| ``output:NAME`` | output | at the root: ``modality``; in a loop: what is read after a step |

Edges run value -> stage -> value and carry ``port``. What a loop carries from one step to the next is the one legal way
back: ``loop.x`` has no edge from the value that feeds it; the graph's attribute ``carry`` lists the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping

import networkx as nx

from genai_pipeline.graph.declarations import declare
from genai_pipeline.graph.linking import Linker
from genai_pipeline.graph.scope import Read, Scope, StageNode
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.graph.values import Value
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Problems

CHOICE = "choice"
_RESULTS = ("logits", "tokens")


def build_scopes(spec: PackageSpec, signatures: Mapping[str, GraphSignature], problems: Problems) -> Scope:
    """The root scope with all below it, every name resolved; components may lack a signature."""
    root = declare(spec, signatures, problems)
    Linker(spec, problems).link_root(root)
    return root


def scope_graphs(root: Scope, spec: PackageSpec) -> dict[str, nx.DiGraph[str]]:
    """The DiGraph of every scope by scope id; the root's is ``""``."""
    return {scope.id: scope_graph(scope, spec) for scope in root.subtree()}


def scope_graph(scope: Scope, spec: PackageSpec) -> nx.DiGraph[str]:
    """The DiGraph of one scope."""
    graph: nx.DiGraph[str] = nx.DiGraph(id=scope.id, scope=scope.kind, carry=_carried(scope))
    for node in scope.nodes:
        _add_stage(graph, node)
    for read in scope.ends:
        target = f"output:{read.use.port}"
        if scope.kind == "root":
            name = read.use.port.removeprefix("outputs.").removesuffix(".segments")
            if not read.use.port.startswith("outputs."):
                continue  # read by admission, before the graph runs
            target = f"output:{name}"
            graph.add_node(target, kind="output", label=name, modality=spec.outputs[name].modality)
        else:
            graph.add_node(target, kind="output", label=read.use.port)
        _connect(graph, _add_value(graph, read), target, read.use.port)
    if scope.kind == "decode":
        _add_choice(graph, scope)
    return graph


def stage_node(stage_id: str) -> str:
    """The graph node of a stage."""
    return f"stage:{stage_id}"


def value_node(key: str) -> str:
    """The graph node of a value."""
    return f"value:{key}"


def _add_stage(graph: nx.DiGraph[str], node: StageNode) -> None:
    spec, name = node.spec, stage_node(node.id)
    optional = {
        "component": spec.run,
        "op": spec.op,
        "for_each": spec.for_each,
        "body": node.body.id if node.body else None,
    }
    graph.add_node(name, kind=spec.kind, label=node.id, **{k: v for k, v in optional.items() if v is not None})
    for read in node.outer_reads():
        _connect(graph, _add_value(graph, read), name, read.use.port)
    for port, value in node.published():
        graph.add_node(value_node(value.key), **_attributes(value, node.scope))
        _connect(graph, name, value_node(value.key), port)


def _add_value(graph: nx.DiGraph[str], read: Read) -> str:
    name = value_node(read.value.key)
    graph.add_node(name, **_attributes(read.value, read.owner))
    return name


def _attributes(value: Value, owner: Scope) -> dict[str, object]:
    return {
        "kind": "value",
        "label": value.name,
        "origin": value.origin,
        "type": value.type,
        "dtype": value.dtype,
        "shape": value.shape,
        "scope": owner.id,
        "produced_by": value.producer,
    }


def _connect(graph: nx.DiGraph[str], source: str, target: str, port: str) -> None:
    if not graph.has_edge(source, target):
        graph.add_edge(source, target, port=port)
    elif port not in graph.edges[source, target]["port"].split(", "):
        graph.edges[source, target]["port"] += f", {port}"


def _add_choice(graph: nx.DiGraph[str], scope: Scope) -> None:
    graph.add_node(CHOICE, kind="choice", label="choice of the next token")
    for read in scope.ends:
        if read.use.port in _RESULTS:
            _connect(graph, value_node(read.value.key), CHOICE, read.use.port)
    chosen = scope.loop["next_token"]
    if value_node(chosen.key) in graph:
        _connect(graph, CHOICE, value_node(chosen.key), "next_token")


def _carried(scope: Scope) -> tuple[tuple[str, str], ...]:
    """(value at the end of a step, ``loop.x`` of the next step), by key."""
    pairs = []
    for read in scope.ends:
        parts = read.use.port.split(".")
        if parts[0] == "carry" and parts[-1] == "next":
            pairs.append((read.value.key, scope.loop[".".join(parts[1:-1])].key))
    return tuple(pairs)


__all__ = ["CHOICE", "build_scopes", "scope_graph", "scope_graphs", "stage_node", "value_node"]

"""A plan drawn as Mermaid or Graphviz text: stages, what flows between them, and each loop's body as a box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import networkx as nx

from genai_pipeline.graph.folding import folded
from genai_pipeline.graph.plan import ExecutionPlan

_SHAPES: Final = {  # kind -> (Mermaid brackets, Graphviz shape)
    "value": (("([", "])"), "ellipse"),
    "output": (("[/", "/]"), "parallelogram"),
    "choice": (("{{", "}}"), "hexagon"),
    "stage": (("[", "]"), "box"),
}


@dataclass(frozen=True, slots=True)
class _Node:
    id: str
    label: str
    shape: str


@dataclass(slots=True)
class _Box:
    """A scope as it is drawn: its nodes and the boxes of the bodies inside."""

    id: str
    label: str
    nodes: list[_Node] = field(default_factory=list)
    boxes: list[_Box] = field(default_factory=list)


@dataclass(slots=True)
class _Drawing:
    ids: dict[tuple[str, str], str] = field(default_factory=dict)  # (scope, graph node) -> drawn id
    edges: dict[tuple[str, str, bool], list[str]] = field(default_factory=dict)  # (from, to, dashed) -> labels
    bodies: list[tuple[str, _Box]] = field(default_factory=list)  # a loop's or group's own node and its body


def to_mermaid(plan: ExecutionPlan) -> str:
    """The plan as a Mermaid flowchart."""
    box, drawing = _draw(plan)
    lines = ["flowchart LR", *_mermaid_box(box, 1)]
    for (source, target, dashed), labels in drawing.edges.items():
        text = f'|"{_mermaid_text(", ".join(folded(labels)))}"|' if labels else ""
        lines.append(f"  {source} {'-.->' if dashed else '-->'}{text} {target}")
    lines += [f'  {node} -.->|"runs"| {body.id}' for node, body in drawing.bodies]
    return "\n".join(lines) + "\n"


def to_dot(plan: ExecutionPlan) -> str:
    """The plan as a Graphviz digraph."""
    box, drawing = _draw(plan)
    lines = [f"digraph {_quoted(plan.package.name)} {{", "  rankdir=LR;", "  compound=true;", *_dot_box(box, 1)]
    for (source, target, dashed), labels in drawing.edges.items():
        style = ", style=dashed" if dashed else ""
        lines.append(f"  {source} -> {target} [label={_quoted(', '.join(folded(labels)))}{style}];")
    for node, body in drawing.bodies:  # an edge to a box is one to a node in it that ends at the border
        lines.append(f'  {node} -> {body.nodes[0].id} [label="runs", style=dashed, lhead=cluster_{body.id}];')
    return "\n".join([*lines, "}"]) + "\n"


def _draw(plan: ExecutionPlan) -> tuple[_Box, _Drawing]:
    drawing = _Drawing()
    return _draw_scope(plan, "", plan.package.name, drawing), drawing


def _draw_scope(plan: ExecutionPlan, scope: str, label: str, drawing: _Drawing) -> _Box:
    graph = plan.scopes[scope]
    box = _Box(f"s{len(drawing.ids)}", label)
    for name, attributes in graph.nodes(data=True):
        if not _is_drawn(graph, scope, name, attributes):
            continue
        drawn = f"n{len(drawing.ids)}"
        drawing.ids[scope, name] = drawn
        kind = attributes["kind"]
        box.nodes.append(_Node(drawn, _label(attributes), kind if kind in _SHAPES else "stage"))
        if "body" in attributes:
            box.boxes.append(_draw_scope(plan, attributes["body"], f"{kind} {attributes['label']}", drawing))
            drawing.bodies.append((drawn, box.boxes[-1]))
    for source, target, label_of_edge in _flows(graph, scope, drawing):
        labels = drawing.edges.setdefault((source, target, False), [])
        if label_of_edge and label_of_edge not in labels:
            labels.append(label_of_edge)
    for last, first in graph.graph["carry"]:
        _draw_carry(graph, scope, last, first, drawing)
    return box


def _is_drawn(graph: nx.DiGraph[str], scope: str, name: str, attributes: dict[str, Any]) -> bool:
    """Values made by a stage become labels of edges; those of scopes further out end at the loop's own node."""
    if attributes["kind"] == "output":
        return attributes["label"] not in ("logits", "tokens") or scope == ""  # those go to the choice
    if attributes["kind"] != "value":
        return True
    return attributes["scope"] == scope and graph.in_degree(name) == 0


def _flows(graph: nx.DiGraph[str], scope: str, drawing: _Drawing) -> Iterator[tuple[str, str, str]]:
    """(from, to, label) of every drawn edge; a value made by a stage joins its maker to its readers."""
    for source, target in graph.edges:
        start, end = drawing.ids.get((scope, source)), drawing.ids.get((scope, target))
        if start is not None and end is not None:
            yield start, end, ""
        elif start is not None:
            readers = (drawing.ids.get((scope, reader)) for reader in graph.successors(target))
            yield from ((start, reader, graph.nodes[target]["label"]) for reader in readers if reader is not None)


def _draw_carry(graph: nx.DiGraph[str], scope: str, last: str, first: str, drawing: _Drawing) -> None:
    makers = (
        [drawing.ids[scope, maker] for maker in graph.predecessors(f"value:{last}")] if f"value:{last}" in graph else []
    )
    carried = drawing.ids.get((scope, f"value:{first}"))
    for maker in makers:
        if carried is not None:
            drawing.edges[maker, carried, True] = ["carry"]


def _label(attributes: dict[str, Any]) -> str:
    label = str(attributes["label"])
    doer = attributes.get("component") or attributes.get("op")
    text = f"{label} ({doer})" if doer and doer != label else label
    return f"{text}, for each of {attributes['for_each']}" if "for_each" in attributes else text


def _mermaid_box(box: _Box, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for node in box.nodes:
        left, right = _SHAPES[node.shape][0]
        yield f'{indent}{node.id}{left}"{_mermaid_text(node.label)}"{right}'
    for inner in box.boxes:
        yield f'{indent}subgraph {inner.id}["{_mermaid_text(inner.label)}"]'
        yield from _mermaid_box(inner, depth + 1)
        yield f"{indent}end"


def _mermaid_text(text: str) -> str:
    return text.replace("#", "#35;").replace('"', "#quot;").replace("\n", " ")


def _dot_box(box: _Box, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for node in box.nodes:
        yield f"{indent}{node.id} [label={_quoted(node.label)}, shape={_SHAPES[node.shape][1]}];"
    for inner in box.boxes:
        yield f"{indent}subgraph cluster_{inner.id} {{"
        yield f"{indent}  label={_quoted(inner.label)};"
        yield from _dot_box(inner, depth + 1)
        yield f"{indent}}}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'

"""From nodes to single values: scalars, tuples and bindings. The tree has passed the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expressions import Literal, parse
from genai_pipeline.metadata.model import Binding
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problems

FAMILY_SLOTS = ("{i}", "{layer}")  # in a port key: it stands for a family of ports
NOTE = "x-"  # fields that begin with it are the author's notes


def plain(node: Node | None, default: Any = None) -> Any:
    """The value as it is, or ``default`` where there is none."""
    return default if node is None else node.plain()


def listed(node: Node | None) -> tuple[Node, ...]:
    """The items of a list that may be left out."""
    return () if node is None else node.items


def integer(node: Node | None) -> int | None:
    """A whole number, also where it was written as 8.0."""
    return None if node is None else int(node.plain())


def several(node: Node | None) -> tuple[Any, ...]:
    """A list, or one value as a list of one."""
    if node is None:
        return ()
    value = node.plain()
    return tuple(value) if isinstance(value, list) else (value,)


def per_layer(node: Node | None) -> Any:
    """One value, or a tuple with one per layer; whole numbers as int."""
    if node is None:
        return None
    value = node.plain()
    return tuple(map(_whole, value)) if isinstance(value, list) else _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def named(node: Node | None) -> Iterator[tuple[str, Node]]:
    """The entries of a mapping from names, without the author's notes."""
    if node is not None:
        yield from ((name, child) for name, child in node.mapping.items() if not name.startswith(NOTE))


def fields(node: Node | None) -> dict[str, Any] | None:
    """A mapping with closed fields as plain values, without the author's notes."""
    return None if node is None else {name: _fields(child) for name, child in named(node)}


def _fields(node: Node) -> Any:
    return fields(node) if isinstance(node.value, dict) else node.plain()


def binding(node: Node, problems: Problems) -> Binding:
    """The expression a node stands for; a fault is recorded and a number takes its place."""
    value = node.plain()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        return Binding(parse(value, node.at), text, node.at)
    except ExpressionError as error:
        problems.error(node.at, "expression.syntax", error.message, error.hint)
        return Binding(Literal(0), text, node.at)


def maybe_binding(node: Node | None, problems: Problems) -> Binding | None:
    """Like ``binding``, for what may be left out."""
    return None if node is None else binding(node, problems)


def port_bindings(node: Node | None, problems: Problems) -> Mapping[str, Binding | tuple[Binding, ...]]:
    """Ports of a stage and their bindings; a family (``x.{i}``) that is given a list has one binding per member."""
    found: dict[str, Binding | tuple[Binding, ...]] = {}
    for port, child in (node.mapping if node is not None else {}).items():
        family = isinstance(child.value, tuple) and any(slot in port for slot in FAMILY_SLOTS)
        members = child.items if family else ()
        found[port] = tuple(binding(item, problems) for item in members) if family else binding(child, problems)
    return found


def bindings(node: Node | None, problems: Problems) -> Mapping[str, Binding]:
    """Ports and their bindings; every key is a port name, notes included."""
    return {} if node is None else {port: binding(child, problems) for port, child in node.mapping.items()}

"""Inputs that a graph declares and no node reads, such as a cross-attention cache that is computed anew in each run.

A runtime wants every input all the same. Such a port is given an array without elements: nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.package_writer import flow
from genai_pipeline.importers.structure.parts import Part

MEANING = "unread"


def unread_values(part: Part) -> dict[str, str]:
    """The value that each unread input is bound to: one for all of the same type and sizes."""
    kinds = list(_kinds(part))
    return {name: _value(kinds.index(_kind(part.facts.inputs[name]))) for name in _unread(part)}


def unread_stages(part: Part) -> list[dict[str, Any]]:
    """The stages, outside loops, that make these values."""
    return [
        {"id": _value(index), "op": "fill", "with": {"shape": list(shape), "dtype": dtype},
         "outputs": {"result": _value(index)}}
        for index, (dtype, shape) in enumerate(_kinds(part))
    ]  # fmt: skip


def unread_lines(part: Part, indent: str = "  ") -> Iterator[str]:
    """The same as lines of a list of stages."""
    for stage in unread_stages(part):
        filled, value = flow(stage["with"]), stage["id"]
        yield f"{indent}- {{id: {value}, op: fill, with: {filled}, outputs: {{result: {value}}}}}  # no node reads it"


def _unread(part: Part) -> Iterator[str]:
    return (name for name, finding in part.inputs.items() if finding.value == MEANING)


def _kinds(part: Part) -> dict[tuple[str, tuple[int, ...]], None]:
    return dict.fromkeys(_kind(part.facts.inputs[name]) for name in _unread(part))


def _kind(port: Port) -> tuple[str, tuple[int, ...]]:
    """Type and sizes: one request on an open first axis, nothing on the other open ones."""
    shape = port.shape or ()
    return port.dtype, tuple(dim if isinstance(dim, int) else 1 - min(axis, 1) for axis, dim in enumerate(shape))


def _value(index: int) -> str:
    return MEANING if index == 0 else f"{MEANING}_{index}"

"""Graphs that look tokens up and put rows of pictures or sounds in the places of one token.

They count rows from the start of what they are given, which a prompt in pieces would upset. So they are given the
prompt with another token in those places, which makes them a plain table, and ``splice`` puts the rows in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from genai_pipeline.graph.onnx_file import read_outline
from genai_pipeline.graph.signature import Port
from genai_pipeline.importers.source_folder import SourceFolder

if TYPE_CHECKING:
    import onnx

WORDS: Final = "words"  # the value that the prompt without slots becomes
# Nodes that put rows in places and leave their numbers alone.
_PLACES: Final = frozenset(
    {"Concat", "Where", "ScatterND", "ScatterElements", "Gather", "GatherND", "Slice", "Squeeze", "Unsqueeze",
     "Reshape", "Flatten", "Expand", "Cast", "Identity"}
)  # fmt: skip


def row_changes(source: SourceFolder, file: str, port: str) -> list[str]:
    """Types of the nodes that change the rows of an input on their way; none where they are only put in places."""
    return sorted(_changes(read_outline(source.path / file, source.path).graph, port))


def empty_axes(port: Port) -> tuple[int, ...] | None:
    """Sizes of the axes of a port in front of the width that make no rows at all; None where all of them are fixed.

    The axis of rows is 0 where it is open, else the one of pictures; the others are as declared, or 1.
    """
    lead = (port.shape or ())[:-1]
    empty = next(
        (axis for axis in reversed(range(len(lead))) if lead[axis] == 0 or not isinstance(lead[axis], int)), None
    )
    if empty is None:
        return None
    return tuple(0 if axis == empty else size if isinstance(size, int) else 1 for axis, size in enumerate(lead))


def stages_without_slots(tokens: Mapping[str, int]) -> list[dict[str, Any]]:
    """Stages of a body that make ``words``: the tokens, another one in the slots of each input (name -> its token)."""
    other = next(index for index in range(len(tokens) + 1) if index not in tokens.values())
    stages: list[dict[str, Any]] = [
        {
            "op": "reshape",
            "with": {"shape": [1, -1]},
            "inputs": {"value": "loop.tokens"},
            "outputs": {"result": "given"},
        }
    ]
    for name, token in tokens.items():
        slots, taken = f"{name}_slots", f"{name}_taken"
        scale = {"scale": other - token}
        stages += [
            {"op": "position_mask", "inputs": {"at": f"{name}.positions"}, "outputs": {"result": slots}},
            {"op": "affine", "with": scale, "inputs": {"value": slots}, "outputs": {"result": taken}},
        ]
    values = ["given", *(f"{name}_taken" for name in tokens)]
    return [*stages, {"op": "sum", "inputs": {"values": values}, "outputs": {"result": WORDS}}]


def _changes(graph: onnx.GraphProto, port: str) -> set[str]:
    rows, found = {port}, set()
    for node in graph.node:
        if any(_reads(attribute.g, rows) for attribute in node.attribute if attribute.HasField("g")):
            found.add(node.op_type)  # what a branch or a loop does to rows is not looked into
        if rows.isdisjoint(node.input) or node.op_type in ("Shape", "CastLike"):
            continue
        if node.op_type in _PLACES:
            rows.update(node.output)
        else:
            found.add(node.op_type)
    return found


def _reads(graph: onnx.GraphProto, names: set[str]) -> bool:
    """Whether a graph inside another one reads any of the values around it."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    return not names.isdisjoint(read) or any(_reads(branch, names) for branch in inner)

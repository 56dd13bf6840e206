"""What the nodes around a graph's state say of it: the window that is attended over, and what grows with each run.

Read from nodes that everybody's graphs have in this form; where a graph does it in another way, nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx

_SAME_VALUE: Final = frozenset({"Cast", "Identity"})  # may stand between a port and the node that tells of it
# Attention that keeps its own cache, and which of its inputs is the past key; the past value follows.
_PASTS: Final = {"GroupQueryAttention": 3, "MultiHeadAttention": 6, "Attention": 4}


def attention_windows(graph: onnx.GraphProto) -> dict[str, int | None]:
    """The window with which a ``GroupQueryAttention`` reads each past port: None means all of it."""
    through = _unchanged(graph)
    windows: dict[str, int | None] = {}
    for node in graph.node:
        if node.op_type != "GroupQueryAttention":
            continue
        size = next((a.i for a in node.attribute if a.name == "local_window_size"), -1)
        for name in node.input[3:5]:
            port = _source(name, through)
            if port:
                windows[port] = size if size > 0 else None
    return windows


def grown_states(graph: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    """Outputs that are a past with more behind it: that input, and the operation that puts it there."""
    through = _unchanged(graph)
    inputs = {value.name for value in graph.input}
    writers = {name: (node, place) for node in graph.node for place, name in enumerate(node.output) if name}
    found: dict[str, tuple[str, str]] = {}
    for output in graph.output:
        node, place = writers.get(_source(output.name, through), (None, 0))
        past = _source(_past_of(node, place), through) if node is not None else ""
        if node is not None and past in inputs:
            found[output.name] = (past, node.op_type)
    return found


def _past_of(node: onnx.NodeProto, place: int) -> str:
    """The value that an output of a node has more behind; "" where that is not known."""
    if node.op_type == "Concat" and len(node.input) > 1:
        return str(node.input[0])
    index = place - 1 + _PASTS.get(node.op_type, len(node.input))  # outputs 1 and 2 are the present key and value
    return str(node.input[index]) if place in (1, 2) and index < len(node.input) else ""


def _unchanged(graph: onnx.GraphProto) -> dict[str, str]:
    """Values that are another value: as it is, or in another type."""
    return {node.output[0]: node.input[0] for node in graph.node if node.op_type in _SAME_VALUE and node.input}


def _source(name: str, through: Mapping[str, str]) -> str:
    """The value at the start of a chain of casts; a damaged graph may have a ring of them."""
    for _ in through:
        if name not in through:
            break
        name = through[name]
    return name

"""Which operators work on each position by itself, and how such a node looks for rows that were picked out.

A value with positions has the shape [b, S, ...] (two leading axes) or, flattened, [b*S, ...] (one). A node is
position-wise when row i of its output depends on row i of its inputs with positions and on values without positions
only. Picked rows are always [n, ...], so a node with two leading axes loses one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.emitter import Emitter
from genai_pipeline.graph.value_facts import (
    ELEMENTWISE,
    HEADS,
    MATMULS,
    QUANTIZE,
    REDUCTIONS,
    WEIGHT_INPUT,
    constant_ints,
    int_attribute,
    is_free,
    last_dim,
    rank_of,
    shape_of,
)

if TYPE_CHECKING:
    import onnx_ir as ir

    Attributes = Mapping[str, ir.Attr]


class NotPositionWiseError(Exception):
    """A node mixes positions, or cannot be shown not to; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node seen as position-wise: its inputs with positions and how many leading axes those have.

    ``redo(emitter, picked)`` computes the picked rows of its output from those of each of these inputs.
    """

    inputs: tuple[ir.Value, ...]
    leading: int
    redo: Callable[[Emitter, Sequence[ir.Value]], ir.Value]
    is_head: bool = False


def step_of(node: ir.Node, leading: int) -> Step:
    """How ``node``, whose output has ``leading`` axes of positions, is redone for rows. Raises NotPositionWiseError."""
    for names, rule in _RULES:
        if node.op_type in names:
            return rule(node, leading)
    raise NotPositionWiseError(f"{_label(node)} is not known to work on each position by itself")


def is_position_wise(node: ir.Node) -> bool:
    """Whether ``step_of`` takes the node, with two leading axes of positions."""
    try:
        step_of(node, 2)
    except NotPositionWiseError:
        return False
    return True


def _head(node: ir.Node, leading: int) -> Step:
    """A product with a matrix that has no positions."""
    if any(int_attribute(node, name, 0) for name in ("transA", "transBatchA", "transBatchB")):
        raise NotPositionWiseError(f"{_label(node)} transposes its left operand")
    if not all(is_free(item) for item in node.inputs[1:]):
        raise NotPositionWiseError(f"{_label(node)} multiplies by something that is no weight")
    if node.op_type in MATMULS and rank_of(node.inputs[WEIGHT_INPUT.get(node.op_type, 1)]) != 2:
        raise NotPositionWiseError(f"{_label(node)} multiplies by something that is no matrix")
    others = node.inputs[2:] if node.op_type in ("Gemm", "MatMulInteger", "QLinearMatMul") else ()
    others = tuple(item for item in others if item is not node.inputs[WEIGHT_INPUT.get(node.op_type, 1)])
    if not all(_is_spread(item, leading, leading + 1) for item in others):
        raise NotPositionWiseError(f"{_label(node)} has an operand that differs by position")
    return _like(node, (0,), leading, is_head=True)


def _elementwise(node: ir.Node, leading: int) -> Step:
    """Operands with positions, and operands that are the same at all of them."""
    if node.op_type in QUANTIZE and not all(_is_single(item) for item in node.inputs[1:]):
        raise NotPositionWiseError(f"{_label(node)} has a scale that is no single number")
    positional = tuple(index for index, item in enumerate(node.inputs) if not is_free(item))
    if not positional:
        raise NotPositionWiseError(f"{_label(node)} has no operand with positions")
    rank = rank_of(node.outputs[0])
    for index, item in enumerate(node.inputs):
        if index not in positional and not _is_spread(item, leading, rank):
            raise NotPositionWiseError(f"{_label(node)} has an operand that differs by position")
    return _like(node, positional, leading)


def _softmax(node: ir.Node, leading: int) -> Step:
    """A softmax over the last axis."""
    rank = rank_of(node.outputs[0])
    axis = int_attribute(node, "axis", -1)
    if axis != -1 and (rank is None or axis != rank - 1):
        raise NotPositionWiseError(f"{_label(node)} works over another axis than the last")
    return _like(node, (0,), leading, attributes={"axis": -1})


def _reshape(node: ir.Node, leading: int) -> Step:
    """A reshape that flattens or splits the leading axes, or one that only touches those after them."""
    target = constant_ints(node.inputs[1])
    if target is None or target[:leading] != (0,) * leading or int_attribute(node, "allowzero", 0):
        return _regroup(node, leading)
    rest = _inner_sizes(target[leading:], last_dim(node.inputs[0]))
    if rest is None:
        raise NotPositionWiseError(f"{_label(node)} has inner axes of sizes that cannot be told")

    def redo(emitter: Emitter, picked: Sequence[ir.Value]) -> ir.Value:
        return emitter.node("", "Reshape", [picked[0], emitter.ints([0, *rest])], {})

    return Step((_value(node.inputs[0]),), leading, redo)


def _inner_sizes(sizes: Sequence[int], width: int | None) -> tuple[int, ...] | None:
    """Fixed sizes for the axes that an axis of ``width`` is split into: with no rows at all, -1 could not be told."""
    known = math.prod(size for size in sizes if size > 0)
    if 0 in sizes or (-1 in sizes and (width is None or width % known)):
        return None
    return tuple(size if size > 0 else (width or 0) // known for size in sizes)


def _regroup(node: ir.Node, leading: int) -> Step:
    """[b*S, X] to [b, S, X] or the reverse: the same rows in the same order, as X stays."""
    source, made = _value(node.inputs[0]), node.outputs[0]
    ranks = (rank_of(source), rank_of(made))
    width = last_dim(source)
    if ranks not in ((2, 3), (3, 2)) or ranks[1] != leading + 1 or width is None or width != last_dim(made):
        raise NotPositionWiseError(f"{_label(node)} may move values between positions")
    return Step((source,), 3 - leading, lambda _emitter, picked: picked[0])


def _reduce(node: ir.Node, leading: int) -> Step:
    """A reduction over axes after the leading ones; they are counted from the end, as the leading ones get fewer."""
    written = "axes" in node.attributes
    axes = tuple(node.attributes.get_ints("axes", ())) if written else constant_ints(_input(node, 1))
    rank = rank_of(node.inputs[0])
    if not axes or rank is None or any(axis % rank < leading for axis in axes):
        raise NotPositionWiseError(f"{_label(node)} may reduce over positions")
    ending = [axis % rank - rank for axis in axes]
    if written:
        return _like(node, (0,), leading, attributes={"axes": ending})

    def redo(emitter: Emitter, picked: Sequence[ir.Value]) -> ir.Value:
        return emitter.node(node.domain, node.op_type, [picked[0], emitter.ints(ending)], dict(node.attributes))

    return Step((_value(node.inputs[0]),), leading, redo)


def _like(
    node: ir.Node,
    positional: tuple[int, ...],
    leading: int,
    *,
    is_head: bool = False,
    attributes: Mapping[str, int | Sequence[int]] | None = None,
) -> Step:
    """The same operator over picked rows."""
    changed = [onnx_file.ir.convenience.convert_attribute(name, value) for name, value in (attributes or {}).items()]
    merged = {**node.attributes, **{attribute.name: attribute for attribute in changed}}
    rank = rank_of(node.outputs[0])

    def redo(emitter: Emitter, picked: Sequence[ir.Value]) -> ir.Value:
        rows = dict(zip(positional, picked, strict=True))
        spread = (lambda item: item) if is_head else partial(_spread, emitter, leading=leading, rank=rank)
        inputs = [rows[index] if index in rows else spread(item) for index, item in enumerate(node.inputs)]
        return emitter.node(node.domain, node.op_type, inputs, merged)

    return Step(tuple(_value(node.inputs[index]) for index in positional), leading, redo, is_head)


def _is_spread(value: ir.Value | None, leading: int, rank: int | None) -> bool:
    """Whether an operand of a node of that rank is the same along its leading axes."""
    shape = shape_of(value)
    if value is None or (shape is not None and len(shape) < 2):
        return True
    if shape is None or rank is None or None in shape:
        return False
    return all(size == 1 for size in shape[: max(0, leading + len(shape) - rank)])


def _spread(emitter: Emitter, value: ir.Value | None, *, leading: int, rank: int | None) -> ir.Value | None:
    """An operand that is the same at all positions, without the axis that two leading axes lose."""
    shape = shape_of(value)
    if leading == 1 or value is None or shape is None or rank is None or len(shape) < rank or len(shape) < 2:
        return value
    sizes = [size for size in shape[1:] if size is not None]
    return emitter.node("", "Reshape", [value, emitter.ints(sizes)], {})


def _is_single(value: ir.Value | None) -> bool:
    """Whether an operand is one number."""
    return value is None or shape_of(value) in ((), (1,))


def _input(node: ir.Node, index: int) -> ir.Value | None:
    return node.inputs[index] if index < len(node.inputs) else None


def _value(value: ir.Value | None) -> ir.Value:
    """A required input; a graph without it is not valid."""
    if value is None:
        raise NotPositionWiseError("a required input of a node is absent")
    return value


def _label(node: ir.Node) -> str:
    """The node as the subject of a reason."""
    return f"{node.op_type} '{node.name}'" if node.name else node.op_type


_RULES: tuple[tuple[frozenset[str], Callable[[ir.Node, int], Step]], ...] = (
    (HEADS, _head),
    (ELEMENTWISE | QUANTIZE, _elementwise),
    (frozenset({"Reshape"}), _reshape),
    (REDUCTIONS, _reduce),
    (frozenset({"Softmax", "LogSoftmax"}), _softmax),
)

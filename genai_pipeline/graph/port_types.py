"""Which values may be cast to a port's dtype: those that come through unchanged.

A value's numbers are known to be small where the engine made them (token ids, lengths, positions) or where they are
checked when a request brings them; what a graph computes can be anything its dtype holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from genai_pipeline.graph.values import Origin
from genai_pipeline.metadata.expressions import (
    AllOf,
    AnyOf,
    Binary,
    Call,
    Compare,
    Expr,
    IfElse,
    ListExpr,
    Literal,
    Measure,
    Negate,
    Not,
    Present,
)

# Integers: dtype -> (bits of magnitude, signed). Floats: dtype -> (bits of mantissa, bits of exponent).
_INTEGERS: Mapping[str, tuple[int, bool]] = {
    "int4": (3, True), "int8": (7, True), "int16": (15, True), "int32": (31, True), "int64": (63, True),
    "uint4": (4, False), "uint8": (8, False), "uint16": (16, False), "uint32": (32, False), "uint64": (64, False),
}  # fmt: skip
_FLOATS: Mapping[str, tuple[int, int]] = {
    "float8_e4m3fn": (4, 4), "float8_e5m2": (3, 5), "float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8),
    "float64": (53, 11),
}  # fmt: skip
_COUNT_BITS = 24  # of what the engine publishes: ids, positions and lengths, exact in a float32
_CHECKED: frozenset[Origin] = frozenset({"input", "item", "parameter", "data"})
_NUMBERS = (Literal, Negate, Binary, Compare, Not, AllOf, AnyOf, Call, Present)  # evaluated for one row at a time
_FLAGS = frozenset({"loop.attention_mask", "loop.first"})


def is_number(dtype: str) -> bool:
    """Whether a port of that dtype takes numbers."""
    return dtype in _INTEGERS or dtype in _FLOATS


def is_integer(dtype: str) -> bool:
    """Whether a port of that dtype takes whole numbers only."""
    return dtype in _INTEGERS


def is_float(dtype: str) -> bool:
    """Whether a port of that dtype takes fractions."""
    return dtype in _FLOATS


def casts(source: str, target: str) -> bool:
    """Whether every number of dtype ``source`` is one of dtype ``target`` too."""
    if source == target:
        return True
    if source == "bool":
        return is_number(target)
    if source in _INTEGERS and target in _INTEGERS:
        bits, signed = _INTEGERS[source]
        target_bits, target_signed = _INTEGERS[target]
        return bits <= target_bits and (target_signed or not signed)
    if source in _INTEGERS and target in _FLOATS:
        return _INTEGERS[source][0] <= _FLOATS[target][0]
    if source in _FLOATS and target in _FLOATS:
        return all(a <= b for a, b in zip(_FLOATS[source], _FLOATS[target], strict=True))
    return False


def fits(name: str, origin: Origin, dtype: str, target: str) -> bool:
    """Whether a value of ``dtype`` may go to a port of dtype ``target``.

    Counts of the engine go to any dtype that holds them; what a request brings is checked when it comes, so only
    its kind counts: whole numbers may go to any number, fractions to any float.
    """
    if casts(dtype, target):
        return True
    if origin in ("loop", "choice") and dtype == "int64":
        if name in _FLAGS:
            return is_number(target) or target == "bool"
        return is_integer(target) or (is_float(target) and _FLOATS[target][0] >= _COUNT_BITS)
    if origin in _CHECKED:
        return (is_integer(dtype) and is_number(target)) or (is_float(dtype) and is_float(target))
    return False


def literal_fault(expr: Expr, dtype: str) -> str | None:
    """Why a literal cannot go to a port of that dtype; None if it can, or if ``expr`` is more than a literal."""
    if isinstance(expr, Literal):
        return _number_fault(expr.value, dtype)
    if isinstance(expr, Negate) and isinstance(expr.operand, Literal):
        value = expr.operand.value
        return _number_fault(-value if isinstance(value, int | float) else value, dtype)
    if isinstance(expr, ListExpr):
        return next((fault for item in expr.items if (fault := literal_fault(item, dtype))), None)
    if isinstance(expr, IfElse):
        return literal_fault(expr.then, dtype) or literal_fault(expr.other, dtype)
    return None


def literal_rank(expr: Expr) -> int | None:
    """The rank of a literal or of what is computed, which is one number; None where a value decides."""
    if isinstance(expr, _NUMBERS) or (isinstance(expr, Measure) and expr.field == "length"):
        return 0
    if isinstance(expr, ListExpr) and expr.items:
        inner = literal_rank(expr.items[0])
        return None if inner is None else inner + 1
    return None


def _number_fault(value: float | bool | str, dtype: str) -> str | None:
    """Why one number, boolean or text cannot be held by a dtype."""
    if isinstance(value, str):
        return None if dtype == "string" else f"'{value}' is text"
    if isinstance(value, bool):
        return None if dtype == "bool" or is_number(dtype) else f"{str(value).lower()} is a boolean"
    if dtype in _INTEGERS:
        bits, signed = _INTEGERS[dtype]
        if not float(value).is_integer():
            return f"{value} is no whole number"
        low, high = (-(2**bits) if signed else 0), 2**bits - 1
        return None if low <= value <= high else f"{value} is outside {low} to {high}"
    if dtype in _FLOATS:
        return None if math.isfinite(value) else f"{value} is not finite"
    return f"{value} is a number"

"""What operands and results of expressions may be: single numbers within bounds, booleans, things with a size."""

from __future__ import annotations

import math
from typing import Any, Final

from genai_pipeline.errors import ExpressionError

MAX_INTEGER: Final = 2**63 - 1  # results beyond what an int64 tensor holds are refused


def plain(value: Any) -> Any:
    """A one-element array as its Python scalar, anything else as it is."""
    return value.item() if getattr(value, "size", None) == 1 else value


def number(value: Any, op: str) -> int | float:
    """The value as an operand of ``op``. Raises ExpressionError when it is no single number."""
    value = plain(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    raise ExpressionError(f"'{op}' needs numbers, not a {kind_of(value)}")


def truth(value: Any, op: str) -> bool:
    """The value as a condition of ``op``. Raises ExpressionError when it is no boolean."""
    value = plain(value)
    if isinstance(value, bool):
        return value
    raise ExpressionError(f"'{op}' needs true or false, not a {kind_of(value)}", hint="compare it, e.g. x > 0")


def bounded(value: int | float) -> int | float:
    """The value if it fits an int64, or is a finite float. Raises ExpressionError otherwise."""
    if isinstance(value, int):
        if -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            return value
    elif math.isfinite(value):
        return value
    raise ExpressionError("a result is too large", hint=f"whole numbers go up to {MAX_INTEGER}")


def sizes(value: Any) -> tuple[int, ...]:
    """The size of each axis; lists in lists count as axes, as far as the first item of each goes.

    Raises AttributeError for what has no axes.
    """
    if not isinstance(value, list | tuple):
        return tuple(int(size) for size in value.shape)
    inner = value[0] if value else None
    return (len(value), *(sizes(inner) if isinstance(inner, list | tuple) or hasattr(inner, "shape") else ()))


def kind_of(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, bool):
        return "boolean"
    names = {int: "number", float: "number", str: "string", list: "list", tuple: "list", dict: "mapping"}
    return names.get(type(value), "tensor" if hasattr(value, "shape") else type(value).__name__)

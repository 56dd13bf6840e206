"""Plain YAML scalars as YAML 1.2's core schema reads them.

Only ``true`` and ``false`` are booleans; ``yes``, ``on``, dates, ``1_000`` and ``12:30:00`` stay strings.
"""

from __future__ import annotations

import math
import re
from typing import Final

Scalar = str | int | float | bool | None

MAX_DIGITS: Final = 64  # significant digits of a whole number that are worth converting (2^64 in octal has 22)


_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITY = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)")
_NAN: Final = frozenset({".nan", ".NaN", ".NAN"})


class NumberTooLargeError(ValueError):
    """A whole number that does not fit 64 bits, or a number beyond what a float holds."""


def resolve(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar. Raises NumberTooLargeError."""
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if text[0] not in "0123456789.+-":
        return text
    return _number(text)


def _number(text: str) -> Scalar:
    if _INTEGER.fullmatch(text):
        return _bounded(text, 10)
    if _OCTAL.fullmatch(text):
        return _bounded(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return _bounded(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return _finite(float(text))
    if _INFINITY.fullmatch(text):
        return float("-inf") if text[0] == "-" else float("inf")
    if text in _NAN:
        return float("nan")
    return text


def _bounded(digits: str, base: int) -> int:
    """The number, if it fits 64 bits; the length is looked at first because converting long ones is slow."""
    if len(digits.lstrip("-+0")) > MAX_DIGITS:
        raise NumberTooLargeError
    value = int(digits, base)
    if not -(2**63) <= value < 2**64:
        raise NumberTooLargeError
    return value


def _finite(value: float) -> float:
    if math.isinf(value):
        raise NumberTooLargeError
    return value

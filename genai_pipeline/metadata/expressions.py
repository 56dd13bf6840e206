"""The expression language of bindings, conditions and limits: parse once, type-check, evaluate per token.

A small typed evaluator on Python's own parser, never ``eval``. A plain value name parses to ``Name``, so that hot
code can look it up without evaluating anything: ``isinstance(expr, Name)``.

| written | node | value |
|---|---|---|
| ``prompt.tokens`` | Name | what the lookup gives |
| ``1``, ``0.5``, ``true``, ``'nearest'`` | Literal | itself |
| ``{tokens: ["<s>"]}`` | TokensLiteral | the node itself |
| ``[a, 1]`` | ListExpr | a list |
| ``a + 1``, ``-a``, ``min(a, b)`` | Binary, Negate, Call | a number within int64 or finite |
| ``a < b <= c``, ``a and not b`` | Compare, AllOf, AnyOf, Not | a boolean |
| ``a if c else b`` | IfElse | the chosen branch |
| ``present(images)`` | Present | a boolean |
| ``x.length``, ``x.shape`` | Measure | a published value of that name, else the size of ``x`` |
| ``x.shape[1]``, ``data.codes[loop.step]`` | Index | an item |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expression_nodes import (
    AllOf,
    AnyOf,
    Binary,
    Call,
    Compare,
    Expr,
    IfElse,
    Index,
    ListExpr,
    Literal,
    Lookup,
    Measure,
    Name,
    Negate,
    Not,
    Present,
    TokensLiteral,
    walk,
)
from genai_pipeline.metadata.expression_parser import parse
from genai_pipeline.metadata.expression_types import TypeOf, ValueType, check_type


def evaluate(expr: Expr, lookup: Lookup) -> Any:
    """The value of an expression. ``lookup(name)`` gives a value or raises KeyError, which is passed on.

    Raises ExpressionError for operands of the wrong kind, division by zero, an index out of range, or a result
    beyond an int64 or the finite floats.
    """
    return expr.evaluate(lookup)


def names(expr: Expr) -> frozenset[str]:
    """The dotted names an expression reads, as written: with ``.length`` or ``.shape`` where it ends in one.

    Whether ``x.length`` is a published value or the length of ``x`` is for the resolver: the longest match counts.
    """
    return frozenset(text for text, _ in _reads(expr))


def optional_names(expr: Expr) -> frozenset[str]:
    """The names that only ``present(...)`` asks for: the expression has a value without them."""
    found = list(_reads(expr))
    return frozenset(text for text, optional in found if optional) - {text for text, optional in found if not optional}


def _reads(expr: Expr) -> Iterator[tuple[str, bool]]:
    """Each name with whether it stands in ``present(...)``."""
    if isinstance(expr, Name):
        yield expr.text, False
    elif isinstance(expr, Present):
        yield expr.name.text, True
    elif isinstance(expr, Measure) and expr.text is not None:
        yield expr.text, False
    else:
        for child in expr.children():
            yield from _reads(child)


__all__ = [
    "AllOf",
    "AnyOf",
    "Binary",
    "Call",
    "Compare",
    "Expr",
    "ExpressionError",
    "IfElse",
    "Index",
    "ListExpr",
    "Literal",
    "Lookup",
    "Measure",
    "Name",
    "Negate",
    "Not",
    "Present",
    "TokensLiteral",
    "TypeOf",
    "ValueType",
    "check_type",
    "evaluate",
    "names",
    "optional_names",
    "parse",
    "walk",
]

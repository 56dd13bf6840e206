"""The nodes of an expression, each of which can give its value: plain Python, bounded, no ``eval``.

Nodes are frozen and hashable. ``evaluate`` is called per token, so each node evaluates itself by a method: one
dispatch, no interpretation of the tree's kinds.

Longer than most modules because the nodes refer to each other through one union type.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expression_values import bounded, kind_of, number, plain, sizes, truth

Lookup = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Name:
    """A dotted value name, as written."""

    text: str

    def evaluate(self, lookup: Lookup) -> Any:
        """The value; ``lookup`` raises KeyError when there is none."""
        return lookup(self.text)

    def children(self) -> tuple[Expr, ...]:
        """No parts."""
        return ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, boolean or string written out."""

    value: int | float | bool | str

    def evaluate(self, lookup: Lookup) -> Any:
        """The value itself."""
        return self.value

    def children(self) -> tuple[Expr, ...]:
        """No parts."""
        return ()


@dataclass(frozen=True, slots=True)
class TokensLiteral:
    """Tokens by text or id (``{tokens: ["<s>"]}``); whoever owns a tokenizer turns them into ids."""

    tokens: tuple[str | int, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """The node itself: an expression has no tokenizer."""
        return self

    def children(self) -> tuple[Expr, ...]:
        """No parts."""
        return ()


@dataclass(frozen=True, slots=True)
class ListExpr:
    """A list of expressions."""

    items: tuple[Expr, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """The list of the items' values."""
        return [item.evaluate(lookup) for item in self.items]

    def children(self) -> tuple[Expr, ...]:
        """The items."""
        return self.items


@dataclass(frozen=True, slots=True)
class Negate:
    """``-x``."""

    operand: Expr

    def evaluate(self, lookup: Lookup) -> Any:
        """The negated number."""
        return -number(self.operand.evaluate(lookup), "-")

    def children(self) -> tuple[Expr, ...]:
        """The operand."""
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class Not:
    """``not x``."""

    operand: Expr

    def evaluate(self, lookup: Lookup) -> Any:
        """The opposite of a boolean."""
        return not truth(self.operand.evaluate(lookup), "not")

    def children(self) -> tuple[Expr, ...]:
        """The operand."""
        return (self.operand,)


ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic on two numbers."""

    op: str
    left: Expr
    right: Expr

    def evaluate(self, lookup: Lookup) -> Any:
        """The result, refused when it divides by zero or leaves the bounds of an int64 or a float."""
        left = number(self.left.evaluate(lookup), self.op)
        right = number(self.right.evaluate(lookup), self.op)
        try:
            return bounded(ARITHMETIC[self.op](left, right))
        except ZeroDivisionError:
            raise ExpressionError(f"'{self.op}' divides {left} by zero") from None
        except OverflowError:
            raise ExpressionError(f"'{left} {self.op} {right}' is too large") from None

    def children(self) -> tuple[Expr, ...]:
        """Both operands."""
        return (self.left, self.right)


COMPARISON: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Compare:
    """A chain of comparisons: ``operands[0] ops[0] operands[1] ops[1] ...``."""

    ops: tuple[str, ...]
    operands: tuple[Expr, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """Whether every link of the chain holds; stops at the first that does not."""
        left = plain(self.operands[0].evaluate(lookup))
        for op, operand in zip(self.ops, self.operands[1:], strict=True):
            right = plain(operand.evaluate(lookup))
            if op not in ("==", "!="):
                left, right = number(left, op), number(right, op)
            if not COMPARISON[op](left, right):
                return False
            left = right
        return True

    def children(self) -> tuple[Expr, ...]:
        """All operands."""
        return self.operands


@dataclass(frozen=True, slots=True)
class AllOf:
    """``a and b``: stops at the first that is false."""

    operands: tuple[Expr, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """Whether all operands are true."""
        return all(truth(operand.evaluate(lookup), "and") for operand in self.operands)

    def children(self) -> tuple[Expr, ...]:
        """All operands."""
        return self.operands


@dataclass(frozen=True, slots=True)
class AnyOf:
    """``a or b``: stops at the first that is true."""

    operands: tuple[Expr, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """Whether any operand is true."""
        return any(truth(operand.evaluate(lookup), "or") for operand in self.operands)

    def children(self) -> tuple[Expr, ...]:
        """All operands."""
        return self.operands


@dataclass(frozen=True, slots=True)
class IfElse:
    """``then if test else other``."""

    test: Expr
    then: Expr
    other: Expr

    def evaluate(self, lookup: Lookup) -> Any:
        """The chosen branch; the other is not evaluated."""
        return (self.then if truth(self.test.evaluate(lookup), "if") else self.other).evaluate(lookup)

    def children(self) -> tuple[Expr, ...]:
        """Test and both branches."""
        return (self.test, self.then, self.other)


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {"min": min, "max": max, "ceil": math.ceil, "floor": math.floor}


@dataclass(frozen=True, slots=True)
class Call:
    """``min``, ``max``, ``ceil`` or ``floor`` of numbers."""

    function: str
    arguments: tuple[Expr, ...]

    def evaluate(self, lookup: Lookup) -> Any:
        """The result."""
        values = [number(argument.evaluate(lookup), self.function) for argument in self.arguments]
        return bounded(FUNCTIONS[self.function](*values))

    def children(self) -> tuple[Expr, ...]:
        """The arguments."""
        return self.arguments


@dataclass(frozen=True, slots=True)
class Present:
    """``present(x)``: whether an optional value is there."""

    name: Name

    def evaluate(self, lookup: Lookup) -> Any:
        """False when the lookup has no such value, or None; an empty list is absent too."""
        try:
            value = lookup(self.name.text)
        except KeyError:
            return False
        return not (value is None or (isinstance(value, list | tuple) and not value))

    def children(self) -> tuple[Expr, ...]:
        """The name."""
        return (self.name,)


@dataclass(frozen=True, slots=True)
class Measure:
    """``x.length`` or ``x.shape``; a published value of that very name (``prompt.length``) goes first."""

    base: Expr
    field: str  # "length" | "shape"

    @property
    def text(self) -> str | None:
        """The whole dotted name when the base is a name."""
        return f"{self.base.text}.{self.field}" if isinstance(self.base, Name) else None

    def evaluate(self, lookup: Lookup) -> Any:
        """The published value, else the number of items (first axis) or the tuple of sizes."""
        if (text := self.text) is not None:
            try:
                return lookup(text)
            except KeyError:
                pass  # not published: measured below
        value = self.base.evaluate(lookup)
        try:
            return sizes(value) if self.field == "shape" else len(value)
        except (AttributeError, TypeError):
            raise ExpressionError(f"a {kind_of(value)} has no .{self.field}") from None

    def children(self) -> tuple[Expr, ...]:
        """The base."""
        return (self.base,)


@dataclass(frozen=True, slots=True)
class Index:
    """``x[i]``: an item of a list, a row of a tensor, a size of a shape, an entry of a mapping."""

    base: Expr
    index: Expr

    def evaluate(self, lookup: Lookup) -> Any:
        """The item, refused when the index is out of range."""
        base, index = self.base.evaluate(lookup), plain(self.index.evaluate(lookup))
        if isinstance(base, str) or isinstance(index, bool | float):
            raise ExpressionError(f"a {kind_of(base)} cannot be indexed by a {kind_of(index)}")
        try:
            return base[index]
        except (IndexError, KeyError):
            raise ExpressionError(f"index {index!r} is out of range for {_extent(base)}") from None
        except TypeError:
            raise ExpressionError(f"a {kind_of(base)} cannot be indexed by a {kind_of(index)}") from None

    def children(self) -> tuple[Expr, ...]:
        """Base and index."""
        return (self.base, self.index)


Expr = (
    Name
    | Literal
    | TokensLiteral
    | ListExpr
    | Negate
    | Not
    | Binary
    | Compare
    | AllOf
    | AnyOf
    | IfElse
    | Call
    | Present
    | Measure
    | Index
)


def walk(expr: Expr) -> Iterator[Expr]:
    """The node and everything below it, outermost first."""
    yield expr
    for child in expr.children():
        yield from walk(child)


def _extent(base: Any) -> str:
    if isinstance(base, Mapping):
        return f"a mapping of {len(base)} entries"
    return f"{len(base)} items"

"""From a YAML value to an expression, on Python's own parser: a short list of constructs, the rest refused by name."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata.expression_nodes import (
    FUNCTIONS,
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
    Measure,
    Name,
    Negate,
    Not,
    Present,
    TokensLiteral,
)
from genai_pipeline.metadata.expression_syntax import ALLOWED, MAX_DEPTH, syntax_tree, too_deep
from genai_pipeline.metadata.expression_values import MAX_INTEGER
from genai_pipeline.problems import Location, nearest

MAX_ITEMS: Final = 4096  # of one YAML list

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_WORDS: Final[Mapping[str, bool]] = {"true": True, "True": True, "false": False, "False": False}
_RESERVED: Final = frozenset({"None", "and", "or", "not", "if", "else", "lambda", "in", "is"})
_MEASURES: Final = ("length", "shape")
_BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARE: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_REFUSED: Final[Mapping[type[ast.AST], str]] = {
    ast.Pow: "power (**)",
    ast.LShift: "a shift (<<)",
    ast.RShift: "a shift (>>)",
    ast.BitOr: "a bit operation (|)",
    ast.BitAnd: "a bit operation (&)",
    ast.BitXor: "a bit operation (^)",
    ast.MatMult: "a matrix product (@)",
    ast.Invert: "a bit operation (~)",
    ast.In: "'in'",
    ast.NotIn: "'not in'",
    ast.Is: "'is'",
    ast.IsNot: "'is not'",
    ast.Lambda: "a lambda",
    ast.Dict: "a mapping",
    ast.Set: "a set",
    ast.Tuple: "a tuple",
    ast.ListComp: "a comprehension",
    ast.SetComp: "a comprehension",
    ast.DictComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.JoinedStr: "an f-string",
    ast.NamedExpr: "an assignment (:=)",
    ast.Starred: "unpacking (*)",
    ast.Slice: "a slice",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
}


def parse(value: object, at: Location) -> Expr:
    """The expression that a YAML value stands for: a string is parsed, other values are literals.

    Raises ExpressionError, with the place ``at``, for anything outside the language.
    """
    try:
        return _from_yaml(value, 0)
    except ExpressionError as error:
        raise ExpressionError(error.message, hint=error.hint, at=at) from None


def _from_yaml(value: object, depth: int) -> Expr:
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bool | int | float):
        return Literal(_literal(value))
    if isinstance(value, list | tuple):
        if depth >= MAX_DEPTH or len(value) > MAX_ITEMS:
            raise ExpressionError(f"a list of more than {MAX_ITEMS} items or nested deeper than {MAX_DEPTH}")
        return ListExpr(tuple(_from_yaml(item, depth + 1) for item in value))
    if isinstance(value, Mapping):
        return _tokens(value)
    raise ExpressionError("an empty value is no expression" if value is None else f"{value!r} is no expression")


def _tokens(value: Mapping[Any, Any]) -> TokensLiteral:
    items = value.get("tokens")
    if set(value) != {"tokens"} or not isinstance(items, list | tuple):
        raise ExpressionError("the only mapping allowed here is {tokens: [...]}", hint="tokens by text or id")
    if not all(isinstance(item, str | int) and not isinstance(item, bool) for item in items):
        raise ExpressionError("tokens are given by text or by id", hint='e.g. {tokens: ["<s>", 5]}')
    return TokensLiteral(tuple(items))


def _from_text(text: str) -> Expr:
    text = " ".join(text.split()) if "\n" in text else text.strip()
    if _DOTTED.fullmatch(text) and text not in _RESERVED:
        return _dotted(text)  # plain names need no parser, and may be words that Python keeps for itself
    return _Builder().build(syntax_tree(text), 0)


def _dotted(text: str) -> Expr:
    if text in _WORDS:
        return Literal(_WORDS[text])
    base, _, field = text.rpartition(".")
    return Measure(Name(base), field) if base and field in _MEASURES else Name(text)


class _Builder:
    """Turns Python's syntax tree into expression nodes, counting depth."""

    def build(self, node: ast.expr, depth: int) -> Expr:
        """The expression for one syntax node. Raises ExpressionError for constructs outside the language."""
        if depth > MAX_DEPTH:
            raise too_deep()
        handler = self._handlers.get(type(node))
        if handler is None:
            raise _refuse(node)
        return handler(self, node, depth + 1)

    def _constant(self, node: ast.Constant, depth: int) -> Expr:
        return Literal(_literal(node.value))

    def _name(self, node: ast.Name, depth: int) -> Expr:
        if node.id in FUNCTIONS or node.id == "present":
            raise ExpressionError(f"{node.id} is a function: {node.id}(...)")
        return _dotted(_identifier(node.id))

    def _attribute(self, node: ast.Attribute, depth: int) -> Expr:
        base = self.build(node.value, depth)
        field = _identifier(node.attr)
        if field in _MEASURES:
            return Measure(base, field)
        if isinstance(base, Name | Measure) and base.text is not None:
            return Name(f"{base.text}.{field}")
        raise ExpressionError(f"only names have fields: .{field}", hint=ALLOWED)

    def _list(self, node: ast.List, depth: int) -> Expr:
        return ListExpr(tuple(self.build(item, depth) for item in node.elts))

    def _unary(self, node: ast.UnaryOp, depth: int) -> Expr:
        operand = self.build(node.operand, depth)
        if isinstance(node.op, ast.Not):
            return Not(operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if not isinstance(node.op, ast.USub):
            raise _refuse(node.op)
        if isinstance(operand, Literal) and type(operand.value) in (int, float):
            return Literal(-operand.value)  # type: ignore[operator]
        return Negate(operand)

    def _binary(self, node: ast.BinOp, depth: int) -> Expr:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise _refuse(node.op)
        return Binary(op, self.build(node.left, depth), self.build(node.right, depth))

    def _compare(self, node: ast.Compare, depth: int) -> Expr:
        for op in (op for op in node.ops if type(op) not in _COMPARE):
            raise _refuse(op)
        operands = tuple(self.build(item, depth) for item in (node.left, *node.comparators))
        return Compare(tuple(_COMPARE[type(op)] for op in node.ops), operands)

    def _bool(self, node: ast.BoolOp, depth: int) -> Expr:
        operands = tuple(self.build(item, depth) for item in node.values)
        return AllOf(operands) if isinstance(node.op, ast.And) else AnyOf(operands)

    def _if_else(self, node: ast.IfExp, depth: int) -> Expr:
        return IfElse(self.build(node.test, depth), self.build(node.body, depth), self.build(node.orelse, depth))

    def _subscript(self, node: ast.Subscript, depth: int) -> Expr:
        return Index(self.build(node.value, depth), self.build(node.slice, depth))

    def _call(self, node: ast.Call, depth: int) -> Expr:
        if not isinstance(node.func, ast.Name):
            raise ExpressionError("only functions have calls", hint=ALLOWED)
        name = node.func.id
        if name not in FUNCTIONS and name != "present":
            functions = (*FUNCTIONS, "present")
            raise ExpressionError(f"'{name}' is no function of expressions", hint=nearest(name, functions) or ALLOWED)
        if node.keywords:
            raise ExpressionError(f"{name} takes no keyword arguments")
        arguments = tuple(self.build(item, depth) for item in node.args)
        return _present(arguments) if name == "present" else _call(name, arguments)

    _handlers: Final[Mapping[type[ast.expr], Callable[[Any, Any, int], Expr]]] = {
        ast.Constant: _constant,
        ast.Name: _name,
        ast.Attribute: _attribute,
        ast.List: _list,
        ast.UnaryOp: _unary,
        ast.BinOp: _binary,
        ast.Compare: _compare,
        ast.BoolOp: _bool,
        ast.IfExp: _if_else,
        ast.Subscript: _subscript,
        ast.Call: _call,
    }


def _call(name: str, arguments: tuple[Expr, ...]) -> Expr:
    if name in ("ceil", "floor") and len(arguments) != 1:
        raise ExpressionError(f"{name} takes one number")
    if name in ("min", "max") and len(arguments) < 2:
        raise ExpressionError(f"{name} takes two numbers or more")
    return Call(name, arguments)


def _present(arguments: tuple[Expr, ...]) -> Expr:
    argument = arguments[0] if len(arguments) == 1 else None
    if isinstance(argument, Measure) and argument.text is not None:
        argument = Name(argument.text)
    if not isinstance(argument, Name):
        raise ExpressionError("present takes one value name", hint="e.g. present(images)")
    return Present(argument)


def _identifier(text: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise ExpressionError(f"'{text}' is no name", hint="names are ASCII letters, digits and underscores")
    return text


def _literal(value: object) -> int | float | bool | str:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        if abs(value) > MAX_INTEGER:
            raise ExpressionError("a number is too large", hint=f"whole numbers go up to {MAX_INTEGER}")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionError("a number is not finite")
        return value
    raise ExpressionError(f"{type(value).__name__} literals are not allowed", hint=ALLOWED)


def _refuse(node: ast.AST) -> ExpressionError:
    return ExpressionError(
        f"{_REFUSED.get(type(node), type(node).__name__)} is not allowed in an expression", hint=ALLOWED
    )

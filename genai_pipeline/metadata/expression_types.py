"""What type an expression has, so that a wrong one is found before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from genai_pipeline.errors import ExpressionError
from genai_pipeline.metadata import expression_nodes as nodes
from genai_pipeline.metadata.expression_nodes import Expr

ValueType = Literal["number", "integer", "boolean", "string", "list", "tensor", "unknown"]
TypeOf = Callable[[str], ValueType]  # raises KeyError for a name that is not published

_LITERALS: Final[dict[type, ValueType]] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def check_type(expr: Expr, type_of: TypeOf) -> ValueType:
    """The type of an expression, given those of names; "unknown" fits everywhere.

    ``type_of`` raises KeyError for what is not published, which types as "unknown" (undefined names are another
    check's). Raises ExpressionError for what can never have a value.
    """
    match expr:
        case nodes.Literal(value):
            return _LITERALS[type(value)]
        case nodes.Name(text):
            return _named(text, type_of)
        case nodes.TokensLiteral():
            return "tensor"
        case nodes.Measure() | nodes.Index() | nodes.ListExpr():
            return _container(expr, type_of)
        case nodes.Present():
            return "boolean"
        case nodes.IfElse(test, then, other):
            _want_boolean(test, "if", type_of)
            return _merged(check_type(then, type_of), check_type(other, type_of))
        case nodes.Binary() | nodes.Negate() | nodes.Call():
            return _arithmetic(expr, type_of)
        case _:
            return _condition(expr, type_of)


def _named(text: str, type_of: TypeOf) -> ValueType:
    try:
        return type_of(text)
    except KeyError:
        return "unknown"


def _container(expr: nodes.Measure | nodes.Index | nodes.ListExpr, type_of: TypeOf) -> ValueType:
    if isinstance(expr, nodes.ListExpr):
        for item in expr.items:
            check_type(item, type_of)
        return "list"
    if isinstance(expr, nodes.Measure):
        return _measure(expr, type_of)
    base = check_type(expr.base, type_of)
    if base not in ("list", "tensor", "unknown"):
        raise ExpressionError(f"{_a(base)} cannot be indexed")
    index = check_type(expr.index, type_of)
    if index not in ("integer", "string", "unknown"):
        raise ExpressionError(f"an index is a whole number or a key, not {_a(index)}", hint="use // to divide")
    return "integer" if isinstance(expr.base, nodes.Measure) else "unknown"


def _measure(expr: nodes.Measure, type_of: TypeOf) -> ValueType:
    if expr.text is not None:
        try:
            return type_of(expr.text)
        except KeyError:
            pass  # no value of that very name: measured
    base = check_type(expr.base, type_of)
    if base not in ("list", "tensor", "string", "unknown") or (base == "string" and expr.field == "shape"):
        raise ExpressionError(f"{_a(base)} has no .{expr.field}")
    return "integer" if expr.field == "length" else "list"


def _arithmetic(expr: nodes.Binary | nodes.Negate | nodes.Call, type_of: TypeOf) -> ValueType:
    op = expr.function if isinstance(expr, nodes.Call) else getattr(expr, "op", "-")
    types = [_want_number(child, op, type_of) for child in expr.children()]
    if isinstance(expr, nodes.Binary) and op in ("//", "%", "/") and _is_zero(expr.right):
        raise ExpressionError(f"'{op}' divides by zero")
    if op in ("ceil", "floor"):
        return "integer"
    if op == "/" or "number" in types:
        return "number"
    return "unknown" if "unknown" in types else "integer"


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, nodes.Literal) and expr.value == 0


def _condition(expr: Expr, type_of: TypeOf) -> ValueType:
    if isinstance(expr, nodes.Compare):
        types = [check_type(operand, type_of) for operand in expr.operands]
        for op, left, right in zip(expr.ops, types, types[1:], strict=False):
            _comparable(op, left, right)
        return "boolean"
    op = {nodes.Not: "not", nodes.AllOf: "and"}.get(type(expr), "or")
    for operand in expr.children():
        _want_boolean(operand, op, type_of)
    return "boolean"


def _comparable(op: str, left: ValueType, right: ValueType) -> None:
    if op not in ("==", "!="):
        for side in (left, right):
            if side not in ("number", "integer", "unknown"):
                raise ExpressionError(f"'{op}' compares numbers, not {_a(side)}")
    elif "unknown" not in (left, right) and _family(left) != _family(right):
        raise ExpressionError(f"'{op}' compares {_a(left)} with {_a(right)}: never equal")


def _want_number(expr: Expr, op: str, type_of: TypeOf) -> ValueType:
    found = check_type(expr, type_of)
    if found not in ("number", "integer", "unknown"):
        hint = "arithmetic on tensors is done by ops, e.g. op: affine" if found == "tensor" else ""
        raise ExpressionError(f"'{op}' needs numbers, not {_a(found)}", hint=hint)
    return found


def _want_boolean(expr: Expr, op: str, type_of: TypeOf) -> None:
    found = check_type(expr, type_of)
    if found not in ("boolean", "unknown"):
        raise ExpressionError(f"'{op}' needs true or false, not {_a(found)}", hint="compare it, e.g. x > 0")


def _a(found: ValueType) -> str:
    return f"an {found}" if found == "integer" else f"a {found}"


def _family(found: ValueType) -> str:
    return "number" if found == "integer" else found


def _merged(then: ValueType, other: ValueType) -> ValueType:
    if then == other or "unknown" in (then, other):
        return then if other == "unknown" else other
    if _family(then) == _family(other):
        return "number"
    raise ExpressionError(f"both branches of 'if' need one type, not {then} and {other}")

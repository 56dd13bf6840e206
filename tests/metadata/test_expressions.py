"""The expression language: what it accepts, what it gives, and that nothing else gets through."""

from __future__ import annotations

import contextlib
import math
import string
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.metadata.expressions import (
    ExpressionError,
    ListExpr,
    Literal,
    Measure,
    Name,
    TokensLiteral,
    check_type,
    evaluate,
    names,
    optional_names,
    parse,
)
from genai_pipeline.problems import Location

AT = Location("package.yaml", 3, 5, "stages[0].when")
VALUES: dict[str, Any] = {
    "parameters.steps": 20,
    "parameters.scale": 0.5,
    "parameters.mode": "fast",
    "loop.step": 2,
    "loop.first": False,
    "prompt.tokens": np.arange(6).reshape(1, 6),
    "prompt.length": 6,
    "images": ["a", "b", "c"],
    "data.codes": [np.full(3, i) for i in range(4)],
    "sizes": {"small": 8, "large": 64},
    "done": np.array([[True]]),
    "nothing": None,
    "empty": [],
}


def lookup(name: str) -> Any:
    return VALUES[name]


def value(text: object) -> Any:
    return evaluate(parse(text, AT), lookup)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parameters.steps", 20),
        ("parameters.steps // 3 + 1", 7),
        ("-parameters.steps % 7", 1),
        ("parameters.scale * (4 - 1)", 1.5),
        ("1 < loop.step <= 2", True),
        ("1 < loop.step < 2", False),
        ("loop.first or loop.step >= 2", True),
        ("not loop.first and present(images)", True),
        ("present(missing)", False),
        ("present(nothing) or present(empty)", False),
        ("3 if loop.first else 4", 4),
        ("min(parameters.steps, 3, 8)", 3),
        ("max(1, 2.5)", 2.5),
        ("ceil(7 / 2) + floor(7 / 2)", 7),
        ("prompt.length", 6),
        ("images.length", 3),
        ("prompt.tokens.length", 1),
        ("prompt.tokens.shape[1]", 6),
        ("prompt.tokens.shape[-1] + 1", 7),
        ("sizes['large']", 64),
        ("sizes['small'] if parameters.mode == 'fast' else sizes['large']", 8),
        ("done", VALUES["done"]),
        ("5 if done else 6", 5),
        ("true", True),
        (True, True),
        (3, 3),
        (0.25, 0.25),
        ("parameters.steps +\n  1", 21),
        ([1, "parameters.steps", ["loop.step"]], [1, 20, [2]]),
        ("[loop.step, 1 + 1]", [2, 2]),
        ({"tokens": ["<s>", 5]}, TokensLiteral(("<s>", 5))),
    ],
)
def test_an_expression_has_its_value(text: object, expected: Any) -> None:
    assert value(text) is expected or value(text) == expected


def test_indexing_a_list_of_tensors_gives_the_tensor() -> None:
    assert value("data.codes[loop.step]").tolist() == [2, 2, 2]


def test_unused_branches_are_not_evaluated() -> None:
    assert value("1 if present(images) else missing") == 1
    assert value("present(missing) and missing > 1") is False


def test_an_absent_value_is_the_lookups_key_error() -> None:
    with pytest.raises(KeyError, match="missing"):
        value("missing + 1")


@pytest.mark.parametrize("text", ["prompt.tokens", "class", "audio.from", "listen.present.0.key"])
def test_a_plain_name_is_a_name(text: str) -> None:
    assert parse(text, AT) == Name(text)


def test_length_and_shape_are_measures() -> None:
    assert parse("images.length", AT) == Measure(Name("images"), "length")
    assert parse("prompt.tokens.shape", AT) == Measure(Name("prompt.tokens"), "shape")
    assert parse([1], AT) == ListExpr((Literal(1),))


def test_names_are_those_written() -> None:
    expr = parse("images.length + data.codes[loop.step].length if present(mask) else x.shape[0]", AT)
    assert names(expr) == {"images.length", "data.codes", "loop.step", "mask", "x.shape"}
    assert optional_names(expr) == {"mask"}
    assert optional_names(parse("present(a) and a > 1", AT)) == frozenset()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("9**9**9", r"power \(\*\*\)"),
        ("1 << 99999", r"shift"),
        ("a | b", "bit operation"),
        ("~a", "bit operation"),
        ("a @ b", "matrix"),
        ("a in b", "'in'"),
        ("a is b", "'is'"),
        ("lambda: 1", "lambda"),
        ("[x for x in y]", "comprehension"),
        ("{'a': 1}", "a mapping"),
        ("(1, 2)", "a tuple"),
        ("f'{a}'", "f-string"),
        ("(a := 1)", "assignment"),
        ("x[1:2]", "slice"),
        ("b'x'", "bytes"),
        ("1j", "complex"),
        ("None + 1", "NoneType"),
        ("...", "ellipsis"),
        ("__import__('os')", "no function"),
        ("().__class__", "a tuple"),
        ("'a'.upper()", "only functions"),
        ("open('x').length", "no function"),
        ("min(1)", "two numbers"),
        ("ceil(1, 2)", "one number"),
        ("min(*x)", "unpacking"),
        ("min(1, key=2)", "keyword"),
        ("min + 1", "is a function"),
        ("present(a + 1)", "one value name"),
        ("present()", "one value name"),
        ("x[0].field", "only names have fields"),
        ("1 # two", "after the expression"),
        ("(1) # two)", "after the expression"),
        ("a; b", "no expression"),
        ("a b", "no expression"),
        ("", "empty"),
        ("  ", "empty"),
        ("a +", "no expression"),
        ("'\\x41'", "backslash"),
        ("1" * 1001, "longer"),
        ("9" * 30, "too large"),
        ("1e999", "not finite"),
        ("(" * 300 + "1" + ")" * 300, "nested too deeply"),
        ("-" * 60 + "x", "nested too deeply"),
        ("ä + 1", "no name"),
        ("1if x else 2", "no expression"),
        ("a\x00b", "no expression"),
        (None, "empty value"),
        (float("inf"), "not finite"),
        (2**63, "too large"),
        ({"tokens": "x"}, "only mapping"),
        ({"tokens": [1.5]}, "by text or by id"),
        ({"token": []}, "only mapping"),
        (object(), "no expression"),
    ],
)
def test_everything_else_is_refused_by_name(text: object, word: str) -> None:
    with pytest.raises(ExpressionError, match=word) as caught:
        parse(text, AT)
    assert caught.value.at == AT


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("cel(1.5)", AT)
    assert caught.value.hint == "did you mean 'ceil'?"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("1 / (parameters.steps - 20)", "by zero"),
        ("1 % 0.0", "by zero"),
        ("9223372036854775807 + 1", "too large"),
        ("1e308 * 10", "too large"),
        ("9223372036854775807 * 9223372036854775807 // 3", "too large"),
        ("images[7]", "out of range"),
        ("images[1.0]", "cannot be indexed"),
        ("images['a']", "cannot be indexed"),
        ("sizes['huge']", "out of range"),
        ("parameters.mode[0]", "cannot be indexed"),
        ("parameters.mode + 1", "needs numbers, not a string"),
        ("prompt.tokens * 2", "needs numbers, not a tensor"),
        ("loop.first + 1", "needs numbers, not a boolean"),
        ("1 if loop.step else 2", "needs true or false"),
        ("parameters.steps.length", "has no .length"),
        ("'a' < 'b'", "needs numbers"),
    ],
)
def test_values_that_do_not_fit_are_refused(text: str, word: str) -> None:
    with pytest.raises(ExpressionError, match=word):
        value(text)


TYPES: dict[str, Any] = {
    "n": "integer",
    "x": "number",
    "b": "boolean",
    "s": "string",
    "items": "list",
    "t": "tensor",
    "u": "unknown",
    "t.length": "integer",
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n + 1", "integer"),
        ("n / 2", "number"),
        ("n * x", "number"),
        ("u + 1", "unknown"),
        ("ceil(x)", "integer"),
        ("max(n, 2)", "integer"),
        ("n < x", "boolean"),
        ("b and present(t)", "boolean"),
        ("not u", "boolean"),
        ("1 if b else 2.0", "number"),
        ("u if b else 's'", "string"),
        ("'a' == s", "boolean"),
        ("items.length", "integer"),
        ("t.length", "integer"),
        ("t.shape", "list"),
        ("t.shape[0]", "integer"),
        ("items[n]", "unknown"),
        ("undefined", "unknown"),
        ([1, "t"], "list"),
        ({"tokens": [1]}, "tensor"),
        (False, "boolean"),
    ],
)
def test_types(text: object, expected: str) -> None:
    assert check_type(parse(text, AT), lambda name: TYPES[name]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "t + 1",
        "s * 2",
        "b + 1",
        "-s",
        "min(n, s)",
        "n and b",
        "1 if n else 2",
        "1 if b else s",
        "s < 's'",
        "s == 1",
        "n[0]",
        "s[0]",
        "items[x]",
        "n.length",
        "s.shape",
        "n // 0",
        "[n, s + 1]",
    ],
)
def test_what_cannot_type_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        check_type(parse(text, AT), lambda name: TYPES[name])


NUMBERS = st.integers(-1000, 1000).map(str) | st.floats(-1e3, 1e3, allow_nan=False).map(repr)
ARITHMETIC = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(inner, inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[3]})"),
        inner.map(lambda text: f"(-{text})"),
    ),
    max_leaves=8,
)


@given(ARITHMETIC)
def test_arithmetic_equals_pythons(text: str) -> None:
    try:
        expected = eval(text, {"__builtins__": {}, "min": min, "max": max})  # noqa: S307 - text is our own
    except ZeroDivisionError:
        expected = None
    try:
        found = value(text)
    except ExpressionError:
        assert expected is None or abs(expected) > 2**62 or len(text) > 1000 or _overflows(text)
        return
    assert found == expected
    assert type(found) is type(expected)


def _overflows(text: str) -> bool:
    """A part of the text is beyond an int64: the product of all its whole numbers is a bound."""
    product = 1.0
    for word in text.replace("(", " ").replace(")", " ").replace(",", " ").split():
        product *= max(1.0, abs(float(word))) if word.lstrip("-").replace(".", "").isdigit() else 1.0
    return product > 2**62 or math.isinf(product)


HOSTILE = st.text(string.ascii_letters[:6] + string.digits[:3] + ".()[]+-*/% '<>=,:{}", max_size=40)


@given(st.text(max_size=60) | HOSTILE)
def test_hostile_text_raises_nothing_but_expression_errors(text: str) -> None:
    try:
        expr = parse(text, AT)
    except ExpressionError:
        return
    with contextlib.suppress(ExpressionError):
        check_type(expr, lambda name: TYPES[name])
    with contextlib.suppress(ExpressionError):
        evaluate(expr, lambda name: 3)


SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)


@given(st.recursive(SCALARS, st.lists, max_leaves=6))
def test_any_yaml_value_parses_or_is_refused(value: object) -> None:
    with contextlib.suppress(ExpressionError):
        parse(value, AT)

"""Numbers and bounds by exact decimal arithmetic: nothing outside is taken, and what is written plainly inside is."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest

from genai_pipeline.errors import ConstraintError

VALUES = [0, 1, 10, -2, 0.5, 1.5, -0.5, -2.75, 10.01, 0.001]
STEPS = ["0", "1", "-1", "0.5", "-0.5", "0.1", "-0.1", "0.01", "-0.01", "0.001", "-0.001"]


def candidates(bounds):
    """Decimals around the bounds, each written in several ways."""
    texts = {"0", "-0", "0.0", "-0.0", "99.5"}
    for bound, step in itertools.product(bounds, STEPS):
        plain = format(Decimal(repr(bound)) + Decimal(step), "f")
        texts |= {plain, f"{plain}0" if "." in plain else f"{plain}.0"}
    return texts


def inside(value, schema):
    """Whether a decimal keeps all bounds, and whether it is a multiple."""
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return (
        (low is None or value >= Decimal(repr(low)))
        and (high is None or value <= Decimal(repr(high)))
        and (above is None or value > Decimal(repr(above)))
        and (below is None or value < Decimal(repr(below)))
        and ("multipleOf" not in schema or value % Decimal(repr(schema["multipleOf"])) == 0)
    )


def bounded(type_, more):
    """Schemas with a lower, an upper or both bounds, inclusive or exclusive."""
    for low, high in itertools.product([None, *VALUES], [None, *VALUES]):
        if low is not None and high is not None and low >= high:
            continue
        for lower, upper in itertools.product(("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            schema = {"type": type_, **more}
            schema |= {lower: low} if low is not None else {}
            schema |= {upper: high} if high is not None else {}
            if (low is None and lower != "minimum") or (high is None and upper != "maximum"):
                continue
            yield schema


@pytest.mark.parametrize("split", [False, True], ids=["together", "allOf"])
@pytest.mark.parametrize(
    ("type_", "more"),
    [("number", {}), ("integer", {}), ("number", {"multipleOf": 0.25}), ("integer", {"multipleOf": 3})],
)
def test_bounds(bench, schema, type_, more, split):
    taken = whole = 0
    for wanted in bounded(type_, more):
        parts = [{key: value} for key, value in wanted.items()]
        spec = bench.spec(schema({"allOf": parts} if split else wanted))
        texts = candidates([value for key, value in wanted.items() if key not in ("type", "multipleOf")])
        fitting = {text for text in texts if inside(Decimal(text), wanted) and (type_ == "number" or "." not in text)}
        found = accepted(bench, spec, texts)
        assert found <= fitting, wanted
        taken += len(found)
        whole += len(fitting)
    assert taken > 100
    assert taken >= whole // 3  # some ways to write a number are left out


def accepted(bench, spec, texts):
    """The texts that are whole answers; none where the schema is refused because no value fits."""
    try:
        constraint = bench.compiler.compile(spec)
    except ConstraintError:
        return set()
    found = set()
    for text in texts:
        matcher = constraint.start_matcher.copy()
        tokens = bench.tokenizer.encode_text(text, allow_special=False)
        if all(matcher.consume(token) for token in tokens) and matcher.accepts_end():
            found.add(text)
    return found

"""Operations that make numbers: shapes, sides and multiples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.call_parameters import call_values
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import operation


def run(name: str, inputs: dict[str, Any], given: dict[str, Any]) -> Any:
    op = operation(name)
    return op.run(inputs, call_values(given, op.spec.parameters, {}.__getitem__), OpContext(stage="it"))["result"]


def test_fill_is_float32_of_one_number() -> None:
    made = run("fill", {}, {"shape": [1, 2, 3], "value": 0.5})
    assert made.dtype == np.float32
    assert np.array_equal(made, np.full((1, 2, 3), 0.5, np.float32))
    assert not run("fill", {}, {"shape": [2]}).any()


@pytest.mark.parametrize(
    ("size", "given", "before", "after"),
    [
        (5, {"least": 8}, 0, 3),
        (5, {"least": 8, "side": "before"}, 3, 0),
        (5, {"least": 4}, 0, 0),
        (5, {"multiple": 4}, 0, 3),
        (8, {"multiple": 4}, 0, 0),
        (5, {"least": 9, "multiple": 4}, 0, 7),
        (0, {"multiple": 4}, 0, 0),
    ],
)
def test_pad_adds_what_is_missing(size: int, given: dict[str, Any], before: int, after: int) -> None:
    value = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    made = run("pad", {"value": value}, {**given, "value": -1})
    expected = np.full((2, before + size + after), -1, np.float32)
    expected[:, before : before + size] = value
    assert np.array_equal(made, expected)
    assert made.dtype == value.dtype


def test_pad_takes_any_axis_that_there_is() -> None:
    value = np.ones((2, 3, 4), np.int64)
    assert run("pad", {"value": value}, {"axis": 1, "least": 5}).shape == (2, 5, 4)
    with pytest.raises(RequestError, match="stage 'it' pads axis 3 of a value with 3 axes"):
        run("pad", {"value": value}, {"axis": 3})

"""Numbers of any library are taken as options; what is none, or out of range, is refused with bounds one can use."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.option_values import as_integer, as_number, integer, number, package_path


@pytest.mark.parametrize("value", [7, np.int64(7), np.uint8(7), np.array(7)])
def test_integers_of_any_library_are_integers(value: Any) -> None:
    assert as_integer(value) == 7
    assert type(as_integer(value)) is int
    assert integer("top_k", value, 0) == 7


@pytest.mark.parametrize("value", [True, np.bool_(True), 7.0, np.float32(7), "7", None, [7], Decimal(7)])
def test_nothing_else_is(value: Any) -> None:
    assert as_integer(value) is None
    with pytest.raises(OptionError, match="top_k must be an integer, at least 0, not ") as caught:
        integer("top_k", value, 0)
    assert caught.value.param == "top_k"


def test_numbers_of_any_library_are_numbers() -> None:
    assert [as_number(value) for value in (2, 0.5, np.float32(0.5), np.int8(2))] == [2, 0.5, 0.5, 2]
    assert [as_number(value) for value in (True, "2", None, 2j, np.bool_(False))] == [None] * 5
    assert number("top_p", np.float32(0.5), 0, 1, above=True) == 0.5


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, np.float64("nan"), "0.5", True])
def test_bounds_are_said_the_same_way_for_every_wrong_value(value: Any) -> None:
    with pytest.raises(OptionError, match="above 0 and at most 1"):
        number("top_p", value, 0, 1, above=True)
    with pytest.raises(OptionError, match="above 0"):
        number("timeout", value, 0, above=True)


def test_a_large_bound_is_a_number_one_can_use() -> None:
    with pytest.raises(OptionError, match="seed must be between 0 and 9223372036854775807, not -1"):
        integer("seed", -1, 0, 2**63 - 1)


def test_a_package_is_named_by_path_or_text() -> None:
    assert [package_path(value) for value in ("smollm2-135m", Path("a/b"))] == ["smollm2-135m", "a/b"]
    for wrong in (5, None, "", b"a", "a\0b"):
        with pytest.raises(OptionError, match="a package is named by") as caught:
            package_path(wrong)
        assert caught.value.hint

"""Arrays of one port compared: the largest differences, the first place beyond the bounds, and what counts as equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from genai_pipeline.cli.parity.differences import Bounds, difference

FLOATS = arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3), elements=st.floats(-1e6, 1e6, width=32))


@given(first=FLOATS, data=st.data())
def test_it_is_what_numpy_calls_close(first: Any, data: st.DataObject) -> None:
    other = data.draw(arrays.arrays(np.float32, first.shape, elements=st.floats(-1e6, 1e6, width=32)))
    found = difference(first, other, Bounds(0.5, 0.25))
    close = np.isclose(other.astype(np.float64), first.astype(np.float64), rtol=0.25, atol=0.5)
    assert found.diverges == (not close.all())
    assert found.beyond == np.count_nonzero(~close)
    assert found.absolute == np.max(np.abs(first.astype(np.float64) - other))
    if found.diverges:
        assert found.at == tuple(np.argwhere(~close)[0])
        assert found.values == (first[found.at], other[found.at])


def test_a_relative_difference_is_over_the_larger_value_and_not_of_noise() -> None:
    first, other = np.array([1e-9, 1.0, 8.0], np.float32), np.array([2e-9, 2.0, 6.0], np.float32)
    found = difference(first, other, Bounds())
    assert (found.absolute, found.relative, found.at, found.beyond) == (2.0, 0.5, (1,), 2)


def test_what_is_no_number_equals_itself_only() -> None:
    odd = np.array([np.nan, np.inf, -np.inf])
    assert not difference(odd, odd.copy(), Bounds()).diverges
    for place, value in enumerate((0.0, -np.inf, np.nan)):
        other = odd.copy()
        other[place] = value
        found = difference(odd, other, Bounds())
        assert (found.at, found.absolute) == ((place,), np.inf)
        assert found.to_dict()["max_absolute"] == "inf"


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_whole_numbers_must_be_the_same(dtype: str) -> None:
    first = np.zeros(3, dtype)
    other = first.copy()
    other[2] = 1
    assert not difference(first, first.copy(), Bounds(atol=9)).diverges
    assert difference(first, other, Bounds(atol=9)).at == (2,)


def test_large_whole_numbers_are_told_apart() -> None:
    first = np.array([2**60], np.int64)
    assert difference(first, first + 1, Bounds()).absolute == 1


def test_texts_must_be_the_same() -> None:
    first = np.array(["a", "b"])
    assert not difference(first, first.copy(), Bounds()).diverges
    assert difference(first, np.array(["a", "c"]), Bounds()).values == ("b", "c")


def test_other_shapes_and_types_diverge() -> None:
    first = np.zeros((2, 3), np.float32)
    assert difference(first, first.T, Bounds()).values == ("float32[2, 3]", "float32[3, 2]")
    assert difference(first, first.astype(np.float64), Bounds()).diverges
    assert not difference(first[:0], first[:0], Bounds()).diverges


def test_only_the_part_that_counts_is_compared() -> None:
    first, other = np.zeros(3), np.ones(3)
    assert not difference(first, other, Bounds(), np.zeros(3, bool)).diverges
    assert difference(first, other, Bounds(), np.array([False, True, False])).at == (1,)


def test_half_precision_has_wider_bounds() -> None:
    first = np.array([1.0], np.float16)
    assert not difference(first, first + np.float16(0.015), Bounds()).diverges
    assert difference(first.astype(np.float32), first.astype(np.float32) + 0.015, Bounds()).diverges

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from genai_pipeline.errors import RequestError

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4)
ARRAYS = hnp.arrays(np.float32, SHAPES, elements=st.floats(-100, 100, width=32))


def cells(shape: tuple[int, ...]) -> Any:
    return product(*map(range, shape))


@given(ARRAYS, st.data())
def test_concat_and_split_are_each_others_inverse(call: Any, array: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    size = array.shape[axis]
    cut = data.draw(st.integers(0, size))
    pieces = call("split", {"value": array}, axis=axis, sizes=[cut, size - cut])["result"]
    assert [piece.shape[axis] for piece in pieces] == [cut, size - cut]
    np.testing.assert_array_equal(call("concat", {"values": pieces}, axis=axis)["result"], array)


def test_concat_of_one_value_is_that_value(call: Any) -> None:
    array = np.ones((2, 3), np.float32)
    assert call("concat", {"values": array}, axis=0)["result"] is array


def test_concat_keeps_the_order(call: Any) -> None:
    one, two = np.array([[1, 2]]), np.array([[3]])
    assert call("concat", {"values": [one, two]}, axis=1)["result"].tolist() == [[1, 2, 3]]


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=4), st.integers(0, 1))
def test_stack_lays_arrays_along_a_new_axis(call: Any, numbers: list[int], axis: int) -> None:
    stacked = call("stack", {"values": [np.array([n, n + 1]) for n in numbers]}, axis=axis)["result"]
    assert stacked.shape == ((len(numbers), 2) if axis == 0 else (2, len(numbers)))
    for i, n in enumerate(numbers):
        assert [stacked[i, j] if axis == 0 else stacked[j, i] for j in (0, 1)] == [n, n + 1]


def test_split_into_equal_parts(call: Any) -> None:
    parts = call("split", {"value": np.arange(6)}, axis=0, parts=3)["result"]
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]


@given(ARRAYS, st.data())
def test_slice_is_the_half_open_range(call: Any, array: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-array.ndim, array.ndim - 1))
    size = array.shape[axis]
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    step = data.draw(st.integers(1, 3))
    wanted = list(range(start, stop, step))
    found = call("slice", {"value": array}, axis=axis, start=start, stop=stop, step=step)["result"]
    assert found.shape[axis] == len(wanted)
    for nth, index in enumerate(wanted):
        np.testing.assert_array_equal(found.take(nth, axis), array.take(index, axis))


def test_slice_counts_negative_indices_from_the_end(call: Any) -> None:
    assert call("slice", {"value": np.arange(5)}, axis=0, start=-3, stop=-1)["result"].tolist() == [2, 3]
    assert call("slice", {"value": np.arange(5)}, axis=0, start=-2)["result"].tolist() == [3, 4]


@given(st.lists(st.integers(-4, 3), min_size=1, max_size=5))
def test_take_replaces_the_axis_by_those_of_the_index(call: Any, index: list[int]) -> None:
    table = np.arange(12).reshape(4, 3)
    found = call("take", {"value": table, "index": np.array([index])})["result"]
    assert found.shape == (1, len(index), 3)
    for nth, number in enumerate(index):
        assert found[0, nth].tolist() == [3 * (number % 4), 3 * (number % 4) + 1, 3 * (number % 4) + 2]


@given(ARRAYS)
def test_reshape_keeps_the_order(call: Any, array: Any) -> None:
    flat = call("reshape", {"value": array}, shape=[-1])["result"]
    assert flat.tolist() == [array[cell] for cell in cells(array.shape)]
    np.testing.assert_array_equal(call("reshape", {"value": flat}, shape=list(array.shape))["result"], array)


@given(ARRAYS, st.randoms())
def test_transpose_takes_axis_i_from_axis_order_i(call: Any, array: Any, random: Any) -> None:
    order = list(range(array.ndim))
    random.shuffle(order)
    found = call("transpose", {"value": array}, order=order)["result"]
    for cell in cells(found.shape):
        source = [0] * array.ndim
        for to, origin in enumerate(order):
            source[origin] = cell[to]
        assert found[cell] == array[tuple(source)]


@given(ARRAYS, st.integers(0, 3), st.integers(0, 3), st.data())
def test_pad_adds_a_border(call: Any, array: Any, before: int, after: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, array.ndim - 1))
    found = call("pad", {"value": array}, axis=axis, before=before, after=after, value=7)["result"]
    for cell in cells(found.shape):
        place = cell[axis] - before
        there = 0 <= place < array.shape[axis]
        assert found[cell] == (array[(*cell[:axis], place, *cell[axis + 1 :])] if there else 7)


def test_pad_fills_up_to_a_size(call: Any) -> None:
    assert call("pad", {"value": np.array([[1, 2]])}, axis=1, to=4, before=1)["result"].tolist() == [[0, 1, 2, 0]]


@given(st.lists(hnp.arrays(np.int64, (2, 3), elements=st.integers(-99, 99)), min_size=1, max_size=4))
def test_sum_without_axis_adds_arrays_and_with_one_what_they_hold(call: Any, arrays: list[Any]) -> None:
    added = call("sum", {"values": arrays})["result"]
    along = call("sum", {"values": arrays}, axis=1)["result"]
    assert along.shape == (2, 1)
    for i in range(2):
        assert along[i, 0] == sum(int(array[i, j]) for array in arrays for j in range(3))
        for j in range(3):
            assert added[i, j] == sum(int(array[i, j]) for array in arrays)


@given(hnp.arrays(np.float64, 5, elements=st.floats(-1e3, 1e3)), st.floats(-9, 9), st.floats(-9, 9))
def test_affine_scales_and_shifts(call: Any, array: Any, scale: float, offset: float) -> None:
    found = call("affine", {"value": array}, scale=scale, offset=offset)["result"]
    assert found.tolist() == [x * scale + offset for x in array.tolist()]


def test_affine_makes_integers_float32_and_keeps_float16(call: Any) -> None:
    assert call("affine", {"value": np.array([1, 2])}, scale=0.5)["result"].dtype == np.float32
    assert call("affine", {"value": np.array([1, 2], np.float16)}, scale=0.5)["result"].dtype == np.float16


def test_fill_is_an_array_of_one_number(call: Any) -> None:
    found = call("fill", {}, shape=[2, "1 + 2"], value=3, dtype="int64")["result"]
    assert found.dtype == np.int64
    assert found.tolist() == [[3, 3, 3], [3, 3, 3]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_repeat_rows_repeats_each_by_its_count(call: Any, counts: list[int]) -> None:
    rows = np.arange(len(counts))[np.newaxis, :, np.newaxis]
    found = call("repeat_rows", {"value": rows, "counts": np.array([counts])})["result"]
    assert found[0, :, 0].tolist() == [row for row, count in enumerate(counts) for _ in range(count)]


def test_repeat_rows_takes_one_count_for_all(call: Any) -> None:
    assert call("repeat_rows", {"value": np.array([[1, 2]]), "counts": 2})["result"].tolist() == [[1, 1, 2, 2]]


def test_last_rows_are_the_last_of_those_that_count(call: Any) -> None:
    value = np.array([[1, 2, 3, 0, 0]])
    assert call("last_rows", {"value": value}, count=2)["result"].tolist() == [[0, 0]]
    assert call("last_rows", {"value": value, "length": np.array([3])}, count=2)["result"].tolist() == [[2, 3]]


def test_coalesce_is_the_first_value_that_is_there(call: Any) -> None:
    assert call("coalesce", {"values": [None, "b", "c"]})["result"] == "b"
    assert call("coalesce", {"values": [None, None]})["result"] is None
    assert call("coalesce", {})["result"] is None


@pytest.mark.parametrize(
    ("name", "inputs", "params"),
    [
        ("concat", {"values": [np.ones((1, 2)), np.ones((2, 2))]}, {"axis": 1}),
        ("concat", {"values": [np.ones(2), np.ones((2, 2))]}, {"axis": 0}),
        ("concat", {"values": []}, {"axis": 0}),
        ("concat", {"values": [np.ones(2)]}, {"axis": 1}),
        ("stack", {"values": [np.ones(2), np.ones(3)]}, {}),
        ("stack", {"values": [np.ones(2)]}, {"axis": 5}),
        ("split", {"value": np.ones(4)}, {"axis": 0}),
        ("split", {"value": np.ones(4)}, {"axis": 0, "sizes": [1, 2]}),
        ("split", {"value": np.ones(4)}, {"axis": 0, "parts": 3}),
        ("split", {"value": np.ones(4)}, {"axis": 0, "parts": 2, "sizes": [4]}),
        ("slice", {"value": np.ones(4)}, {"axis": 0, "start": 2, "stop": 5}),
        ("slice", {"value": np.ones(4)}, {"axis": 0, "start": 3, "stop": 2}),
        ("take", {"value": np.ones((4, 2)), "index": 4}, {}),
        ("take", {"value": np.ones((4, 2)), "index": [0, -5]}, {}),
        ("take", {"value": np.ones((4, 2)), "index": 0.5}, {}),
        ("reshape", {"value": np.ones(4)}, {"shape": [3]}),
        ("reshape", {"value": np.ones(4)}, {"shape": [-1, -1]}),
        ("reshape", {"value": np.ones(4)}, {"shape": [-1, 3]}),
        ("transpose", {"value": np.ones((4, 2))}, {"order": [0, 0]}),
        ("transpose", {"value": np.ones((4, 2))}, {"order": [0]}),
        ("pad", {"value": np.ones(4)}, {"axis": 0, "to": 3}),
        ("sum", {"values": [np.ones(2), np.ones(3)]}, {}),
        ("fill", {}, {"shape": [1 << 15, 1 << 15]}),
        ("repeat_rows", {"value": np.ones((1, 2)), "counts": [1, 2, 3]}, {}),
        ("repeat_rows", {"value": np.ones((1, 2)), "counts": [1, -1]}, {}),
        ("last_rows", {"value": np.ones((1, 2))}, {"count": 3}),
        ("affine", {"value": "text"}, {}),
        ("affine", {}, {}),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, name: str, inputs: dict[str, Any], params: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="stage 'here'"):
        call(name, inputs, **params)["result"]

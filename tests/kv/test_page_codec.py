"""Encodings of pages: exact ones give back every bit, int8 stays within half a step per value."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from genai_pipeline.graph.plan import StateTensor
from genai_pipeline.kv.geometry import PAGE_TOKENS, TensorLayout
from genai_pipeline.kv.page_codec import ExactCodec, Int8Codec
from genai_pipeline.kv.page_memory import PageMemory, runs


def layout(dtype: str, *shape: str | int) -> TensorLayout:
    return TensorLayout.of(StateTensor(0, "k", "p", "n", dtype, ("batch", *shape)))


@given(arrays(np.float32, (4, 2, 8), elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_int8_is_off_by_half_a_step_at_most(values: NDArray[np.float32]) -> None:
    codec = Int8Codec([layout("float32", 2, "length", 8)])
    columns = codec.encode([values])
    assert columns is not None
    assert [(column.dtype, column.shape[1:]) for column in columns] == [(c.dtype, c.shape) for c in codec.columns]
    (found,) = codec.decode(columns)
    step = np.abs(values).max(axis=-1, keepdims=True) / 127
    assert (np.abs(found - values) <= 0.5001 * step + 2e-36).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_int8_keeps_dtype_and_extremes(dtype: str) -> None:
    codec = Int8Codec([layout(dtype, 2, "length", 3)])
    values = np.array([[[65504, 0, -65504], [0, 0, 0]]] * 2).astype(codec._dtypes[0])
    columns = codec.encode([values])
    assert columns is not None
    (found,) = codec.decode(columns)
    assert found.dtype == values.dtype
    np.testing.assert_allclose(found.astype(np.float32), values.astype(np.float32), rtol=1e-2)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_int8_has_no_form_for_values_that_are_no_numbers(bad: float) -> None:
    codec = Int8Codec([layout("float32", 2, "length", 3)])
    values = np.ones((4, 2, 3), np.float32)
    values[3, 1, 2] = bad
    assert codec.encode([values]) is None


def test_int8_leaves_integers_and_lone_numbers_alone() -> None:
    codec = Int8Codec([layout("int8", 2, "length", 3), layout("float32", "length")])
    tensors: list[NDArray[Any]] = [np.arange(24, dtype=np.int8).reshape(4, 2, 3), np.arange(4, dtype=np.float32)]
    columns = codec.encode(tensors)
    assert columns is not None
    for found, tensor in zip(codec.decode(columns), tensors, strict=True):
        np.testing.assert_array_equal(found, tensor)


def test_exact_pages_are_the_tensors() -> None:
    codec = ExactCodec([layout("bfloat16", 2, "length", 3)])
    assert codec.columns[0].dtype == np.dtype(ml_dtypes.bfloat16)
    tensor = np.ones((4, 2, 3), ml_dtypes.bfloat16)
    assert codec.decode(codec.encode([tensor]))[0] is tensor


def test_slots_are_taken_low_and_kept_within_the_bound() -> None:
    codec = ExactCodec([layout("float32", 64, "length", 16), layout("float32", "length", 1)])
    memory = PageMemory(codec.columns, 5 * (PAGE_TOKENS * 4 * (64 * 16 + 1)) + 3)
    slots = [memory.take() for _ in range(6)]
    assert slots == [0, 1, 2, 3, 4, None]
    memory.give([3, 1, 4])
    assert (memory.used, memory.warm) == (2, 3)
    memory.cool(1)
    assert memory.warm == 1
    assert [memory.take() for _ in range(4)] == [1, 3, 4, None]
    memory.close()


def test_cooling_touches_no_neighbour() -> None:
    codec = ExactCodec([layout("float32", 3, "length", 50), layout("int8", "length", 7)])
    memory = PageMemory(codec.columns, 10**6)
    slots = [memory.take() for _ in range(20)]
    assert None not in slots
    rng = np.random.default_rng(0)
    tokens = 20 * PAGE_TOKENS
    columns = [rng.random((tokens, 3, 50), np.float32), rng.integers(0, 99, (tokens, 7)).astype(np.int8)]
    memory.write(range(20), columns)
    memory.give([3, 7, 8, 19])
    memory.cool(0)
    for slot in set(range(20)) - {3, 7, 8, 19}:
        for found, column in zip(memory.view(slot, 1), columns, strict=True):
            np.testing.assert_array_equal(found, column[slot * PAGE_TOKENS : (slot + 1) * PAGE_TOKENS])
    memory.close()


@given(st.lists(st.integers(0, 9), unique=True))
def test_runs_are_the_slots_in_order(slots: list[int]) -> None:
    found = list(runs(slots))
    assert [slot for first, length in found for slot in range(first, first + length)] == slots
    assert all(a + n != b for (a, n), (b, _) in zip(found, found[1:], strict=False))  # noqa: RUF007

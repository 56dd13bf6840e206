"""Fixed states side by side: every order of rows that come, go, are renamed and run together gives each its own."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.graph.plan import StateTensor
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.shelf import Shelf, Shelves

LAYOUTS = [TensorLayout.of(StateTensor(0, "key", "past", None, "float32", ("batch", 2, "length", 3)))]
MOST = 5


def state(mark: int, width: int = 4) -> list[NDArray[Any]]:
    return [np.full((2, width, 3), mark, np.float32)]


def seen(buffers: list[Buffer]) -> list[list[float]]:
    """What a graph reads: the marks of each row of a bound batch."""
    (buffer,) = buffers
    size = int(np.prod(buffer.shape))
    memory = (ctypes.c_float * size).from_address(buffer.address)
    return [sorted(set(row.ravel().tolist())) for row in np.frombuffer(memory, np.float32).reshape(buffer.shape)]


def test_rows_of_a_run_are_one_piece_of_memory_and_lie_still() -> None:
    shelf = Shelf(LAYOUTS, MOST)
    shelf.prepare((4,))
    for row in range(4):
        shelf.put(row, state(row))
    (all_rows,) = shelf.together([0, 1, 2, 3])
    assert seen([all_rows]) == [[0], [1], [2], [3]]
    (some,) = shelf.together([1, 2])  # a part of them is read where it is
    assert (some.address - all_rows.address, some.shape) == (2 * 4 * 3 * 4, (2, 2, 4, 3))
    assert shelf.together([0, 1, 2, 3]) == [all_rows]


def test_a_gap_costs_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(LAYOUTS, MOST)
    shelf.prepare((4,))
    for row in range(5):
        shelf.put(row, state(row))
    shelf.remove(1)
    shelf.rename(4, 1)  # as the engine does: the last row fills the gap
    copies: list[tuple[int, int]] = []
    shift = Shelf._shift
    monkeypatch.setattr(Shelf, "_shift", lambda self, a, b: (copies.append((a, b)), shift(self, a, b))[1])
    assert seen(shelf.together([0, 1, 2, 3])) == [[0], [4], [2], [3]]
    assert copies == [(4, 1)]


def test_memory_counts_when_it_is_written_and_stays_warm_for_the_next() -> None:
    shelves = Shelves(LAYOUTS, MOST)
    one = 2 * 4 * 3 * 4
    for row in range(3):
        shelves.put(row, state(row))
    assert shelves.nbytes == 3 * one
    for row in range(3):
        shelves.remove(row)
    assert shelves.nbytes == 3 * one
    shelves.put(0, state(9, width=2))  # other lengths use the same memory
    assert shelves.nbytes == 3 * one
    shelves.remove(0)
    shelves.trim()
    assert shelves.nbytes == 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "rename", "run"]), st.integers(0, 99), st.integers(1, 2)), max_size=60
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_each_row_reads_its_own_state_whatever_happened_before(steps: list[tuple[str, int, int]], random: Any) -> None:
    shelves = Shelves(LAYOUTS, MOST)
    marks: dict[int, tuple[int, int]] = {}
    for number, (what, pick, width) in enumerate(steps):
        rows = sorted(marks)
        if what == "put" and len(rows) < MOST:
            row = next(row for row in range(MOST + 1) if row not in marks)
            shelves.put(row, state(number, width))
            marks[row] = (number, width)
        elif rows and what == "remove":
            row = rows[pick % len(rows)]
            shelves.remove(row)
            del marks[row]
        elif rows and what == "rename":
            row, free = rows[pick % len(rows)], next(row for row in range(MOST + 1) if row not in marks)
            shelves.move(row, free)
            marks[free] = marks.pop(row)
        elif rows:
            same = [row for row in rows if marks[row][1] == marks[rows[pick % len(rows)]][1]]
            run = random.sample(same, random.randint(1, len(same)))
            shelf = shelves.of(run[0])
            assert shelf is not None
            assert seen(shelf.together(run)) == [[marks[row][0]] for row in run]
        for row, (mark, length) in marks.items():
            shelf = shelves.of(row)
            assert shelf is not None
            assert np.array_equal(shelf.state(row)[0], state(mark, length)[0])

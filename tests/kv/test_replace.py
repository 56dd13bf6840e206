"""Recurrent state: known where it was kept and nowhere between, swapped at commit, in any place of the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.geometry import SNAPSHOTS
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.kv.replace import ReplaceStorage

PROMPT = [7, 8, 9, 30, 31, 8, 8, 40]
Make = Callable[..., Any]


class Recorder:
    """A binding that remembers what it was bound to; ``run`` writes past + 1 into present."""

    def __init__(self) -> None:
        self.bound: dict[str, Buffer] = {}

    def bind_input(self, port: str, buffer: Buffer) -> None:
        self.bound[port] = buffer

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        assert buffer is not None
        self.bound[port] = buffer

    def run(self) -> None:
        self.array("n")[...] = self.array("p") + 1

    def output(self, port: str) -> Any:
        raise AssertionError("state goes into buffers of its own")

    def array(self, port: str) -> Any:
        buffer = self.bound[port]
        owner: Any = buffer.owner
        return owner[: int(np.prod(buffer.shape))].reshape(buffer.shape)


def storage(shape: tuple[int | str, ...] = ("batch", 2), initial: float = 0.0) -> tuple[ReplaceStorage, Recorder]:
    """A storage of one tensor with rows 0 to 3 open, and a binding for it."""
    made = ReplaceStorage(StatePlan("replace", (StateTensor(0, "", "p", "n", "float32", shape),), initial=initial))
    for row in range(4):
        made.open(row)
    return made, Recorder()


def step(made: ReplaceStorage, binding: Recorder, rows: list[int], lengths: list[int], new: int = 1) -> None:
    made.bind(binding, rows, lengths, [new] * len(rows))
    binding.run()
    made.commit(rows, [length + new for length in lengths])


def test_an_empty_row_has_the_initial_value() -> None:
    made, binding = storage(initial=-np.inf)
    made.bind(binding, [2, 0], [0, 0], [1, 1])
    assert binding.array("p").tolist() == [[-np.inf] * 2] * 2
    assert made.save(3, 0, 0)[0].tolist() == [-np.inf] * 2


def test_the_same_rows_are_not_copied_again() -> None:
    made, binding = storage()
    addresses = set()
    for length in range(6):
        step(made, binding, [0, 2, 1], [length] * 3)
        addresses |= {binding.bound["p"].address, binding.bound["n"].address}
    assert len(addresses) == 2
    assert [made.save(row, 0, 6)[0].tolist() for row in (0, 1, 2)] == [[6, 6]] * 3


@pytest.mark.parametrize("shape", [("batch", 2), (3, "batch", 2), ("batch",)], ids=str)
def test_the_batch_may_be_any_axis(shape: tuple[int | str, ...]) -> None:
    made, binding = storage(shape)
    step(made, binding, [0], [0])
    step(made, binding, [1, 0], [0, 1])
    step(made, binding, [2, 1, 0], [0, 1, 2])
    step(made, binding, [1], [2])
    made.release(0)
    made.move(1, 0)
    step(made, binding, [0, 2, 3], [3, 1, 0])
    sizes = tuple(dim for dim in shape if dim != "batch")
    for row, count in ((0, 4), (2, 2), (3, 1)):
        np.testing.assert_array_equal(made.save(row, 0, count)[0], np.full(sizes, count, np.float32))


def test_a_run_that_is_not_committed_leaves_the_old_state() -> None:
    made, binding = storage()
    step(made, binding, [0, 1], [0, 0])
    for rows in ([0, 1], [1]):
        made.bind(binding, rows, [1] * len(rows), [2] * len(rows))
        binding.run()
    assert made.save(0, 0, 1)[0].tolist() == made.save(1, 0, 1)[0].tolist() == [1, 1]
    step(made, binding, [0, 1], [1, 1])
    assert made.save(1, 0, 2)[0].tolist() == [2, 2]


def test_tokens_of_a_run_cannot_be_dropped() -> None:
    made, binding = storage()
    made.bind(binding, [0], [0], [3])
    binding.run()
    with pytest.raises(AssertionError, match="cannot be committed"):
        made.commit([0], [2])


def test_boundaries_are_0_the_length_and_the_snapshots() -> None:
    made, binding = storage()
    for length in range(SNAPSHOTS + 2):
        made.snapshot(0)
        step(made, binding, [0, 1], [length, length])
    end = SNAPSHOTS + 2
    assert made.boundaries(1) == {0, end}
    assert made.boundaries(0) == {0, end, *range(2, end)}
    with pytest.raises(AssertionError, match="not known"):
        made.save(0, 0, 1)
    assert [made.save(0, 0, at)[0][0] for at in (0, 2, 3, end)] == [0, 2, 3, end]
    made.truncate(0, 3)
    assert made.boundaries(0) == {0, 2, 3}
    step(made, binding, [0, 1], [3, end])
    assert made.save(0, 0, 4)[0].tolist() == [4, 4]
    assert made.save(1, 0, end + 1)[0].tolist() == [end + 1] * 2
    made.truncate(0, 0)
    assert made.save(0, 0, 0)[0].tolist() == [0, 0]
    assert made.boundaries(0) == {0}


def test_what_was_saved_does_not_change_with_the_row() -> None:
    made, binding = storage()
    step(made, binding, [0], [0])
    made.snapshot(0)
    saved = made.save(0, 0, 1)
    step(made, binding, [0], [1])
    made.load(2, 0, 1, saved)
    saved[0][...] = 9
    made.truncate(0, 1)
    assert made.save(2, 0, 1)[0].tolist() == made.save(0, 0, 1)[0].tolist() == [1, 1]


def test_a_long_history_is_reached_again_from_a_snapshot(decoder: Make) -> None:
    model = decoder("replace")
    row = model.open()
    model.run({row: PROMPT[:4]})
    model.pool.snapshot(row)
    model.run({row: PROMPT[4:]})
    assert model.pool.boundaries(row) == {0, 4, 8}
    model.truncate(row, 4)
    assert model.prefill(row, [50, 51]) == model.alone([*PROMPT[:4], 50, 51], 1)[0]
    model.truncate(row, 0)
    assert model.prefill(row, PROMPT, chunk=3) == model.alone(PROMPT, 1)[0]


def test_rows_of_one_run_take_equal_numbers_of_tokens(decoder: Make) -> None:
    pool = decoder("replace").pool
    assert not pool.uneven
    assert pool.ragged
    assert pool.whole == {"decoder": (True,)}


def states(update: Any, bytes_per_token: int) -> StatePlan:
    shape = ("batch", bytes_per_token // 4) if update == "replace" else ("batch", "length", bytes_per_token // 4)
    return StatePlan(update, (StateTensor(0, "x", f"p{update}", f"n{update}", "float32", shape),))


def test_parts_of_different_kinds_meet_at_one_boundary() -> None:
    pool = KvPool({"a": [states("append", 8)], "b": [states("replace", 8)]}, max_rows=2, capacity=32)
    row = pool.open()
    assert row is not None
    pool.reserve(row, 32)
    pool.load(row, 0, 20, {"a": [[np.ones((20, 2), np.float32)]], "b": [[np.ones(2, np.float32)]]})
    assert pool.boundaries(row) == {0, 20}
    assert pool.pad_side == "left"
    pool.snapshot(row)
    pool.load(row, 20, 30, {"a": [[np.ones((10, 2), np.float32)]], "b": [[np.full(2, 5, np.float32)]]})
    assert pool.boundaries(row) == {0, 20, 30}
    pool.truncate(row, 20)
    saved = pool.save(row, 0, 20)
    assert [len(saved["a"][0][0]), saved["b"][0][0].tolist()] == [20, [1, 1]]


def test_the_budget_pays_for_rows_and_their_tokens() -> None:
    parts = {"a": [states("append", 64)], "b": [states("replace", 512)]}
    page, row = 16 * 2 * 64, (2 + SNAPSHOTS) * 512
    pool = KvPool(parts, max_rows=2, capacity=64, budget_bytes=4 * page + 3 * row)
    assert (pool.max_rows, pool.num_pages) == (2, 5)
    narrow = KvPool(parts, max_rows=8, capacity=64, budget_bytes=2 * page + 3 * row)
    assert (narrow.max_rows, narrow.num_pages) == (3, 2)
    assert (pool.page_bytes, pool.row_bytes) == (page, row)
    wide = KvPool(parts, max_rows=2, capacity=64, budget_bytes=100 * page)
    assert (wide.max_rows, wide.num_pages) == (2, 8)
    alone = KvPool({"b": parts["b"]}, max_rows=8, capacity=64, budget_bytes=5 * row)
    assert (alone.max_rows, alone.num_pages) == (5, 20)


def test_a_row_starts_as_what_it_is_set_to_and_comes_back_to_it() -> None:
    made, binding = storage()
    made.set(1, [np.array([5.0, 7.0], np.float32)])
    assert made.save(1, 0, 0)[0].tolist() == [5.0, 7.0]
    for length in range(3 * SNAPSHOTS):
        step(made, binding, [0, 1], [length, length])
        made.snapshot(0)
        made.snapshot(1)
    assert made.save(1, 0, 3 * SNAPSHOTS)[0].tolist() == [5.0 + 3 * SNAPSHOTS, 7.0 + 3 * SNAPSHOTS]
    assert made.save(1, 0, 0)[0].tolist() == [5.0, 7.0]
    assert len(made.boundaries(1)) == len(made.boundaries(0))
    for row, start in ((0, [0.0, 0.0]), (1, [5.0, 7.0])):
        made.truncate(row, 0)
        step(made, binding, [row], [0])
        assert made.save(row, 0, 1)[0].tolist() == [value + 1 for value in start]

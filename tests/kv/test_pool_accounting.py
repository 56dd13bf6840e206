"""Rows and pages add up after any history, and every row keeps exactly its own tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from numpy.typing import NDArray

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.geometry import PAGE_TOKENS, TensorLayout, aligned_capacity, bytes_per_token, pages_for
from genai_pipeline.kv.pages import PageLedger
from genai_pipeline.kv.pool import KvPool

CAPACITY, ROWS, PAGES = 96, 4, 14


def plans() -> dict[str, list[StatePlan]]:
    """Two components with three kinds of state, tensors of different shapes and dtypes."""
    shapes = (("batch", 2, "length", 4), ("batch", "length", 6))
    tensors = tuple(
        StateTensor(0, str(i), f"p{i}", f"n{i}", dtype, shape)
        for i, (dtype, shape) in enumerate(zip(("float32", "float16"), shapes, strict=True))
    )
    kinds = {"a": ("in_place", "append"), "b": ("scatter",)}
    return {name: [StatePlan(update, tensors) for update in updates] for name, updates in kinds.items()}  # type: ignore[arg-type]


class PoolMachine(RuleBasedStateMachine):
    """Compares a pool with a dict of token lists and plain page arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(plans(), max_rows=ROWS, capacity=CAPACITY)
        self.pool._ledger = PageLedger(ROWS, PAGES)  # fewer pages than all rows could fill
        self.tokens: dict[int, list[int]] = {}
        self.held: dict[int, int] = {}
        self.serial = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.tokens)))

    @rule()
    def open(self) -> None:
        row = self.pool.open()
        free = [r for r in range(ROWS) if r not in self.tokens]
        assert row == (free[0] if free else None)
        if row is not None:
            self.tokens[row], self.held[row] = [], 0

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), count=st.integers(1, 40))
    def extend(self, data: st.DataObject, count: int) -> None:
        row = self.pick(data)
        start = data.draw(st.integers(0, len(self.tokens[row])))
        stop = min(start + count, CAPACITY)
        if stop == start:
            return
        need = max(pages_for(stop), self.held[row])
        fits = need - self.held[row] <= PAGES - sum(self.held.values())
        assert self.pool.reserve(row, stop) == fits
        if fits:
            self.held[row] = need
            new = list(range(self.serial, self.serial + stop - start))
            self.serial = (self.serial + stop - start) % 1000
            saved = {name: [[block(new, s), block(new, s)[:, 0]] for s in states] for name, states in plans().items()}
            for blocks in saved.values():
                for state in blocks:
                    state[1] = np.repeat(np.array(new, np.float16)[:, None], 6, axis=1)
            self.pool.load(row, start, stop, saved)
            self.tokens[row] = self.tokens[row][:start] + new

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        row = self.pick(data)
        length = data.draw(st.integers(0, len(self.tokens[row])))
        self.pool.truncate(row, length)
        self.tokens[row] = self.tokens[row][:length]
        self.held[row] = min(self.held[row], pages_for(length))

    @precondition(lambda self: 0 < len(self.tokens) < ROWS)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        row = self.pick(data)
        target = data.draw(st.sampled_from([r for r in range(ROWS) if r not in self.tokens]))
        self.pool.move(row, target)
        self.tokens[target], self.held[target] = self.tokens.pop(row), self.held.pop(row)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        row = self.pick(data)
        self.pool.release(row)
        del self.tokens[row], self.held[row]

    @rule()
    def trim(self) -> None:
        self.pool.trim()

    @invariant()
    def pages_are_conserved(self) -> None:
        assert self.pool.free_pages == PAGES - sum(self.held.values()) >= 0
        assert self.pool.free_rows == ROWS - len(self.tokens)

    @invariant()
    def rows_hold_their_own_tokens(self) -> None:
        for row, tokens in self.tokens.items():
            assert self.pool.length(row) == len(tokens)
            for states in self.pool.save(row, 0, len(tokens)).values():
                for tensors in states:
                    for tensor in tensors:
                        assert (tensor.reshape(len(tokens), -1) == np.array(tokens)[:, None]).all() if tokens else True

    def teardown(self) -> None:
        for row in list(self.tokens):
            self.pool.release(row)
        usage = self.pool.usage()
        assert (usage.rows, usage.pages) == (0, 0)
        self.pool.close()


def block(tokens: list[int], _state: StatePlan) -> NDArray[np.float32]:
    return np.broadcast_to(np.array(tokens, np.float32)[:, None, None], (len(tokens), 2, 4)).copy()


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_closed_pool_says_nothing_of_memory() -> None:
    pool = KvPool(plans(), max_rows=2, capacity=64)
    pool.close()
    assert pool.usage().resident_bytes is None


def test_sizes() -> None:
    assert [pages_for(tokens) for tokens in (0, 1, 16, 17)] == [0, 1, 1, 2]
    states = [state for group in plans().values() for state in group]
    assert bytes_per_token(states) == 4 * (2 * 4 * 4 + 6 * 2)  # "append" has two buffers
    layouts = [TensorLayout.of(tensor) for tensor in states[0].tensors]
    capacity = aligned_capacity(layouts, 100)
    assert capacity >= 100
    assert all(capacity * layout.stripe_token_bytes % 4096 == 0 for layout in layouts)
    assert layouts[1].shape(3, 10) == (3, 10, 6)


def test_a_page_reserved_ahead_stays_until_it_is_given_back() -> None:
    ledger = PageLedger(2, 10)
    row = ledger.take()
    assert row == 0
    assert ledger.reserve(row, 4 * PAGE_TOKENS)
    assert ledger.reserve(row, 1)  # less than it holds: nothing changes
    assert ledger.held(row) == 4
    assert not ledger.reserve(row, 11 * PAGE_TOKENS)
    assert ledger.free_pages == 6
    ledger.shrink(row, PAGE_TOKENS + 1)
    assert ledger.free_pages == 8


def test_a_commit_beyond_the_reserved_pages_is_our_bug() -> None:
    kv = KvPool(plans(), max_rows=1, capacity=32)
    row = kv.open()
    assert row is not None
    with pytest.raises(AssertionError, match="too few pages"):
        kv.commit([row], [1])


def test_components_that_pad_on_different_sides_run_equal_lengths_only() -> None:
    assert not KvPool(plans(), max_rows=1, capacity=32).ragged
    assert KvPool({"b": plans()["b"]}, max_rows=1, capacity=32).pad_side == "right"

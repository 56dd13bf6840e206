"""State that is written once: captured from a row's first run or set from outside, then only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.fixed import FixedStorage
from genai_pipeline.kv.pool import KvPool

SOURCES = ((7, 8, 9), (30, 31, 32), (9, 9))
PROMPT = [7, 40, 8]
Make = Callable[..., Any]


@pytest.mark.parametrize("own", ["append", "in_place", "scatter"])
def test_each_row_keeps_the_state_of_its_own_source(decoder: Make, own: str) -> None:
    model = decoder("fixed", own=own)
    rows = [model.open(source) for source in SOURCES[:2]]
    logits = model.run(dict.fromkeys(rows, PROMPT))  # both states are written by one run
    last = {row: model.choose(logits, i, 3) for i, row in enumerate(rows)}
    firsts = dict(last)
    assert firsts[rows[0]] != firsts[rows[1]]
    out = model.generate(rows, last, 4)
    for row, source in zip(rows, SOURCES, strict=False):
        assert [firsts[row], *out[row]] == model.alone(PROMPT, 5, source)


def test_rows_that_join_later_share_runs_when_their_states_have_one_shape(decoder: Make) -> None:
    model = decoder("fixed")
    a, b, c = (model.open(source) for source in SOURCES)
    last = {a: model.prefill(a, PROMPT)}
    first = {a: last[a]}
    assert model.pool.batch_key(a) != model.pool.batch_key(b) == model.pool.batch_key(c)
    for row in (b, c):
        first[row] = last[row] = model.prefill(row, PROMPT)
    assert model.pool.batch_key(a) == model.pool.batch_key(b) != model.pool.batch_key(c)
    with pytest.raises(AssertionError, match="equal shapes"):
        model.run({a: [1], c: [1]})
    out = model.generate([b, a], last, 3)
    out |= model.generate([c], last, 3)
    for row, source in zip((a, b, c), SOURCES, strict=True):
        assert [first[row], *out[row]] == model.alone(PROMPT, 4, source)


def test_a_first_run_that_fails_writes_nothing(decoder: Make) -> None:
    model = decoder("fixed")
    row = model.open(SOURCES[1])
    model.pool.reserve(row, 3)
    model.pool.bind("decoder", model.binding, [row], [0], [3])  # ... and no run, no commit
    assert model.prefill(row, PROMPT) == model.alone(PROMPT, 1, SOURCES[1])[0]


def test_a_row_that_starts_anew_writes_its_state_again(decoder: Make) -> None:
    model = decoder("fixed")
    row = model.open(SOURCES[0])
    model.prefill(row, PROMPT)
    model.truncate(row, 2)
    assert model.prefill(row, [8, 8]) == model.alone([*PROMPT[:2], 8, 8], 1, SOURCES[0])[0]
    model.truncate(row, 0)
    model.sources[row] = SOURCES[2]
    assert model.prefill(row, PROMPT) == model.alone(PROMPT, 1, SOURCES[2])[0]


def test_saved_state_goes_with_the_tokens(decoder: Make) -> None:
    model = decoder("fixed")
    row = model.open(SOURCES[2])
    model.prefill(row, PROMPT)
    saved = model.pool.save(row, 0, 3)
    own, cross = saved["decoder"]
    assert model.pool.whole == {"decoder": (False, True)}
    assert (own[0].shape, cross[0].shape) == ((3, 2, 8), (2, 2, 8))
    model.release(row)
    empty, target = model.open(SOURCES[0]), model.open(SOURCES[2])
    model.pool.load(empty, 0, 0, model.pool.save(empty, 0, 0))  # nothing was written: nothing is
    assert model.prefill(empty, PROMPT) == model.alone(PROMPT, 1, SOURCES[0])[0]
    model.pool.reserve(target, 3)
    model.pool.load(target, 0, 3, saved)
    model.rows[target] = list(PROMPT)
    assert model.prefill(target, [9, 8]) == model.alone([*PROMPT, 9, 8], 1, SOURCES[2])[0]


def test_a_state_from_outside_is_set_before_the_first_run() -> None:
    tensor = StateTensor(0, "key", "past", None, "float32", ("batch", 2, "length", 3))
    plan = StatePlan("fixed", (tensor,), source="encoder")
    storage = FixedStorage(plan)
    bound: dict[str, Any] = {}

    class Inputs:
        def bind_input(self, port: str, buffer: Any) -> None:
            bound[port] = buffer

    for row in range(2):
        storage.open(row)
    binding: Any = Inputs()
    with pytest.raises(AssertionError, match="before the first run"):
        storage.bind(binding, [0], [0], [1])
    for row in range(2):
        storage.set(row, [np.full((2, 4, 3), row, np.float32)])
    with pytest.raises(AssertionError, match="once"):
        storage.set(0, [np.zeros((2, 4, 3), np.float32)])
    storage.bind(binding, [1, 0], [0, 0], [1, 1])
    assert bound["past"].shape == (2, 2, 4, 3)
    storage.commit([1, 0], [1, 1])
    storage.truncate(1, 0)
    assert [storage.save(row, 0, 0)[0].max() for row in range(2)] == [0, 1]
    assert storage.resident_bytes()
    storage.close()


def test_it_takes_no_pages() -> None:
    tensor = StateTensor(0, "key", "past", "present", "float32", ("batch", 2, "length", 3))
    pool = KvPool({"a": [StatePlan("fixed", (tensor,))]}, max_rows=2, capacity=64)
    assert (pool.page_bytes, pool.row_bytes, pool.boundaries(pool.open() or 0)) == (0, 0, None)

"""A row that goes on as another does: what beams of one search do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Make = Callable[..., Any]
PROMPT = [7, 40, 8, 11]


KINDS = ("in_place", "append", "scatter", "replace", "fixed")
HOMES = ("gathered in_place", "gathered scatter", "device in_place", "device scatter")


@pytest.mark.parametrize("update", [*KINDS, *HOMES])
def test_a_grafted_row_goes_on_as_the_other(decoder: Make, update: str) -> None:
    model = decoder(update)
    rows = [model.open() for _ in range(3)]
    model.run(dict.fromkeys(rows, PROMPT))
    model.run({rows[0]: [20], rows[1]: [21], rows[2]: [22]})
    model.run({rows[0]: [30], rows[1]: [31], rows[2]: [32]})
    for target, source in ((rows[2], rows[0]), (rows[1], rows[0])):
        model.pool.graft(source, target, len(PROMPT), len(PROMPT) + 2)
        model.rows[target] = list(model.rows[source])
    assert [model.pool.length(row) for row in rows] == [6, 6, 6]
    logits = model.run({rows[0]: [9], rows[1]: [9], rows[2]: [10]})
    for i, last in enumerate((9, 9, 10)):
        assert [int(logits[i, 0].argmax())] == model.alone([*PROMPT, 20, 30, last], 1)
    again = model.run({rows[2]: [12]})
    assert [int(again[0, 0].argmax())] == model.alone([*PROMPT, 20, 30, 10, 12], 1)
    for row in rows:
        model.release(row)
    assert model.pool.free_pages == model.pool.num_pages


def test_state_that_is_written_once_stays_where_it_is(decoder: Make) -> None:
    model = decoder("fixed")
    rows = [model.open() for _ in range(2)]
    model.run(dict.fromkeys(rows, PROMPT))
    (storage,) = [storage for storage in model.pool._flat if storage.whole]
    before = storage.save(rows[1], 0, len(PROMPT))
    place = storage._shelves.of(rows[1]).state(rows[1])[0].ctypes.data
    model.pool.graft(rows[0], rows[1], 2, len(PROMPT))
    assert storage._shelves.of(rows[1]).state(rows[1])[0].ctypes.data == place
    assert np.array_equal(storage.save(rows[1], 0, len(PROMPT))[0], before[0])
    other = model.open((30, 31, 32))
    assert model.pool.reserve(other, len(PROMPT))
    model.pool.graft(rows[0], other, 0, len(PROMPT))  # a row without tokens takes it over
    saved = [storage.save(row, 0, len(PROMPT)) for row in (rows[0], other)]
    assert all(np.array_equal(mine, its) for mine, its in zip(*saved, strict=True))

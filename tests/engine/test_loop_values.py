"""Lengths that a decode loop publishes for rows of different pasts and different numbers of new tokens."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.loop_values import Frame, LoopValues

STARTS, STOPS = (0, 5, 2), (4, 6, 5)  # p and p + n of three rows: n is 4, 1 and 3, so S is 4


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("past_length", [0, 5, 2]),
        ("total_length", [4, 6, 5]),
        ("padded_length", [4, 9, 6]),  # p + S: the last real token of a padded row still sees what came before it
        ("sequence_lengths", [4, 1, 3]),
        ("last_index", [3, 5, 4]),
        ("write_indices", [0, 5, 2]),
        ("max_length", 6),
    ],
)
def test_lengths_of_ragged_rows(name: str, values: Any) -> None:
    rows: tuple[Any, ...] = (None, None, None)
    batch = Batch(rows, STARTS, STOPS, (True,) * 3, (0,) * 3, (1,) * 3, 4)
    published = LoopValues(())
    published.update(Frame(batch, "right", 5))
    assert published.array(name).tolist() == values

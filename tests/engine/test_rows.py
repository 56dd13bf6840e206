from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.engine.rows import compaction, consecutive


@given(st.integers(1, 12), st.data())
def test_after_the_moves_the_decoding_rows_are_the_first(sequences: int, data: st.DataObject) -> None:
    num_rows = sequences + 1  # as pools have
    taken = set(data.draw(st.lists(st.integers(0, sequences), unique=True, min_size=1, max_size=sequences)))
    decoding = set(data.draw(st.lists(st.sampled_from(sorted(taken)), unique=True, min_size=1)))
    rows = {row: row for row in taken}  # row -> who is there, by first place
    for source, target in compaction(decoding, taken):
        assert 0 <= target < num_rows
        assert target not in rows, "a move must go to a free row"
        rows[target] = rows.pop(source)
    assert sorted(rows.values()) == sorted(taken)
    assert {row for row, who in rows.items() if who in decoding} == set(range(len(decoding)))


@given(st.sets(st.integers(0, 20), min_size=1))
def test_consecutive_rows_are_ranges_that_cover_all(rows: set[int]) -> None:
    groups = consecutive(rows)
    assert sorted(row for group in groups for row in group) == sorted(rows)
    for group in groups:
        assert list(group) == list(range(group[0], group[0] + len(group)))
    for left, right in pairwise(groups):
        assert left[-1] + 1 < right[0]


def test_nothing_moves_when_the_decoding_rows_are_the_first() -> None:
    assert compaction({0, 1}, {0, 1, 4}) == []

from __future__ import annotations

import pytest

from genai_pipeline.speculative.stats import SpeculationStats, judged


@pytest.mark.parametrize(
    ("drafts", "chosen", "expected"),
    [
        ([1, 2, 3], [9], (3, 0)),  # the first was wrong: all three were run
        ([1, 2, 3], [1, 9], (3, 1)),
        ([1, 2, 3], [1, 2, 3, 4], (3, 3)),
        ([1, 2, 3], [1, 2], (2, 2)),  # the sequence ended with the second
        ([1, 2, 3], [1, 2, 3], (3, 3)),
        ([], [5], (0, 0)),
    ],
)
def test_all_drafts_of_a_run_count_unless_the_sequence_ends_within_them(
    drafts: list[int], chosen: list[int], expected: tuple[int, int]
) -> None:
    assert judged(drafts, chosen) == expected


def test_runs_add_up() -> None:
    total = SpeculationStats().verified(4, 1) + SpeculationStats().verified(3, 3)
    assert (total.drafted, total.accepted, total.runs) == (7, 4, 2)

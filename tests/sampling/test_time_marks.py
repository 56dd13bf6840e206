"""Marks of time stand in pairs, never go back, and are chosen by their sum."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.sampling.time_marks import TimeMarks, TimeRule

END, FIRST, LAST, SIZE = 4, 6, 15, 16  # ids 0 to 3 are words, 4 ends, 5 is never chosen, 6 to 15 are marks
RULE = TimeRule(first=FIRST, last=LAST, latest=8, ends=(END,), suppressed=(5,))


def allowed(after: list[int], row: list[float] | None = None, rule: TimeRule = RULE) -> set[int]:
    """What may come after some tokens, for logits in which no sum of marks beats the words."""
    marks = TimeMarks(rule)
    for token in after:
        marks.accept(token)
    logits = np.array(row if row is not None else [9.0] * 5 + [0.0] * 11, np.float32)
    marks.apply(logits)
    return {int(i) for i in np.flatnonzero(np.isfinite(logits))}


WORDS = {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([], {6, 7, 8}),  # a mark, not a late one
        ([7], WORDS | {END}),  # a stretch has opened: what is said
        ([7, 0], WORDS | {END} | set(range(8, 16))),  # more of it, or a mark behind the one that opened it
        ([7, 0, 11], {END} | set(range(11, 16))),  # it has closed: the next opens, at the same time or later
        ([7, 0, 11, 11], WORDS | {END}),
        ([7, 0, 11, 11, 2], WORDS | {END} | set(range(12, 16))),
        ([6, 0, 15], {END, 15}),
        ([6, 0, 15, 15, 1], WORDS | {END}),  # no time is left
    ],
)
def test_what_may_come_next(after: list[int], expected: set[int]) -> None:
    assert allowed(after) == expected


def test_marks_that_are_likelier_together_leave_no_words() -> None:
    row = [1.0, 0, 0, 0, 0, 0, *[-1.0] * 10]  # ten marks at -1 are log(10) - 1 = 1.3 together
    assert allowed([6, 0], row) == set(range(7, 16))
    row[0] = 1.4
    assert {0, END} < allowed([6, 0], row)


def test_what_is_never_chosen_does_not_outweigh_the_marks() -> None:
    row = [1.0, 0, 0, 0, 0, 8.0, *[-1.0] * 10]
    assert allowed([6, 0], row) == set(range(7, 16))


def test_an_answer_without_marks_never_has_any() -> None:
    rule = TimeRule(first=FIRST, last=LAST, latest=8, ends=(END,), wanted=False)
    for after in ([], [0], [0, 1, 2]):
        assert allowed(after, rule=rule) == WORDS | {END, 5}


@given(st.lists(st.lists(st.floats(-5, 5, width=32), min_size=SIZE, max_size=SIZE), min_size=1, max_size=40))
def test_any_answer_is_well_formed(rows: list[list[float]]) -> None:
    marks, answer = TimeMarks(RULE), list[int]()
    for row in rows:
        logits = np.array(row, np.float32)
        marks.apply(logits)
        assert np.isfinite(logits.max()), "something can always be chosen"
        token = int(logits.argmax())
        if token == END:
            break
        marks.accept(token)
        answer.append(token)
    assert FIRST <= answer[0] <= RULE.latest
    times = [token for token in answer if token >= FIRST]
    assert times == sorted(times)
    kinds = "".join("m" if token >= FIRST else "w" for token in answer)
    assert "mmm" not in kinds
    assert not kinds.startswith("mm")
    for opening, closing in zip(times[0::2], times[1::2], strict=False):
        assert opening < closing
    assert all(later >= earlier for earlier, later in pairwise(times))

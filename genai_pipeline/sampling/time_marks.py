"""Tokens that mark times: they stand in pairs around stretches of text, never go back, and are chosen by their sum.

A model that writes such marks spreads their probability over many neighbouring times, so each of them alone looks
unlikely beside a word. The rules are those of OpenAI's Whisper, decoding.py, ``ApplyTimestampRules``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genai_pipeline.sampling.penalties import Ids, Logits


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Ids ``first`` to ``last`` (included) are marks, in the order of time; an answer begins with one up to ``latest``.

    ``wanted``: whether this answer has marks at all; one without never has any. ``ends`` are end tokens, ``suppressed``
    those never chosen: what is likelier than all marks together is looked for among the others.
    """

    first: int
    last: int
    latest: int
    ends: tuple[int, ...]
    suppressed: tuple[int, ...] = ()
    wanted: bool = True


class TimeMarks:
    """Follows one answer."""

    __slots__ = ("_before", "_ends", "_floor", "_rule", "_suppressed", "_was_mark")

    def __init__(self, rule: TimeRule) -> None:
        self._rule = rule
        self._ends: Ids = np.array(rule.ends, np.int64)
        self._suppressed: Ids = np.array(rule.suppressed, np.int64)
        self._floor = rule.first  # the earliest mark that may come next
        self._was_mark: bool | None = None  # whether the last token was one; None at the beginning
        self._before = True  # whether the one before it was; what lies before the answer counts as one

    def accept(self, token: int) -> None:
        """A token joins the answer."""
        mark = self._rule.first <= token <= self._rule.last
        self._before = self._was_mark if self._was_mark is not None else True
        self._was_mark = mark
        if mark:  # one that closes a stretch may be written again to open the next, which then takes some time
            self._floor = token if not self._before else token + 1

    def apply(self, row: Logits) -> None:
        """Ban what may not come next."""
        rule = self._rule
        marks = row[rule.first : rule.last + 1]
        if not rule.wanted:
            marks[:] = -np.inf
            return
        row[self._suppressed] = -np.inf
        if self._was_mark is None:
            self._only_marks(row, ends=False)
            row[rule.latest + 1 : rule.last + 1] = -np.inf
        elif self._was_mark and self._before:
            marks[:] = -np.inf
        elif self._was_mark:
            self._only_marks(row, ends=True)
        row[rule.first : self._floor] = -np.inf
        if _log_of_sum(marks) > max(_highest(row[: rule.first]), _highest(row[rule.last + 1 :])):
            self._only_marks(row, ends=False)

    def _only_marks(self, row: Logits, *, ends: bool) -> None:
        """Ban all other tokens; end tokens too, unless they are kept."""
        kept = row[self._ends]
        row[: self._rule.first] = -np.inf
        row[self._rule.last + 1 :] = -np.inf
        if ends:
            row[self._ends] = kept


def _log_of_sum(logits: Logits) -> float:
    """The logarithm of the sum of their exponentials; -inf where all are banned."""
    highest = _highest(logits)
    if not np.isfinite(highest):
        return highest
    return highest + float(np.log(np.exp(logits.astype(np.float64) - highest).sum()))


def _highest(logits: Logits) -> float:
    return float(logits.max()) if logits.size else -np.inf

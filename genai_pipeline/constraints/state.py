"""A compiled constraint, and where one sequence stands in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.constraints.llg import GrammarVocabulary, Matcher
from genai_pipeline.constraints.spec import ConstraintSpec
from genai_pipeline.errors import ConstraintRunError

MaskRow = NDArray[np.int32]  # [words]; bit i % 32 of word i // 32 is set when token i may be chosen


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint compiled for a vocabulary; threads may share it."""

    spec: ConstraintSpec
    vocabulary: GrammarVocabulary
    start_matcher: Matcher  # never moved, only copied
    end_ids: frozenset[int]

    def start(self, ends: frozenset[int] | None = None) -> ConstraintState:
        """The state of a new sequence, which ``ends`` end; None: the end tokens of the vocabulary."""
        return ConstraintState(self.start_matcher.copy(), self.vocabulary, self.end_ids if ends is None else ends)


class ConstraintState:
    """Where one sequence stands. One thread at a time uses it."""

    def __init__(self, matcher: Matcher, vocabulary: GrammarVocabulary, ends: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._ends = ends
        self._ended = False

    @property
    def finished(self) -> bool:
        """Whether nothing but an end may follow: the answer is whole. With no end tokens it has to stop here."""
        return self._ended or self._matcher.complete()

    def fill(self, row: MaskRow) -> None:
        """Write the tokens that may follow: ends exactly where the answer may end, ids past the tokenizer never.

        Raises ConstraintRunError, with an empty row, when no token may follow or a limit is reached.
        """
        row[:] = 0
        if not self._ended:
            mask = self._matcher.mask()
            words = min(len(row), len(mask))
            row[:words] = mask[:words]
            may_end = self._matcher.accepts_end()  # not the bit of the end, which a grammar of token ids may set
            _set(row, self._vocabulary.end, False)
            for token in self._ends:
                _set(row, token, may_end)
        if not row.any():
            why = (
                "the answer is whole and nothing ends it" if self.finished else "no token may follow in this constraint"
            )
            hint = "allow an end token" if self.finished else "end tokens may stand only where the answer is whole"
            raise ConstraintRunError(why, hint=hint)

    def accept(self, token: int) -> None:
        """Go one token on. Raises ConstraintRunError, without moving, for a token that may not follow."""
        if token in self._ends:
            allowed = self._ended or self._matcher.accepts_end()
            self._ended = allowed
        else:
            allowed = not self._ended and token < self._vocabulary.size and self._matcher.consume(token)
        if not allowed:
            raise ConstraintRunError(f"the token {token} may not follow in this constraint")

    def forced(self) -> list[int]:
        """Tokens that must follow and are written as the tokenizer would; none of them ends the sequence."""
        if self._ended:
            return []
        tokens = list(self._matcher.forced())
        stop = next((index for index, token in enumerate(tokens) if token in self._ends), len(tokens))
        return tokens[:stop]


def _set(row: MaskRow, token: int, value: bool) -> None:
    """Set or clear the bit of a token, if the row reaches so far."""
    if token // 32 < len(row):
        bits = row.view(np.uint32)
        bit = np.uint32(1 << (token % 32))
        if value:
            bits[token // 32] |= bit
        else:
            bits[token // 32] &= ~bit

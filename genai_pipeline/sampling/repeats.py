"""Repetition of whole passages: DRY, and n-grams that may not occur twice. Both ask what once followed the same tokens.

DRY: p-e-w, text-generation-webui #5677 (2024). N-grams: ``no_repeat_ngram_size`` of fairseq (Paulus et al. 2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.options import GenerationOptions

LONGEST_MATCH: Final = 50  # tokens of a match that DRY counts, as its reference does
LARGEST_PENALTY: Final = 1e30  # keeps penalised logits finite in float32

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]


class SuffixMatches:
    """For each earlier position, how many tokens up to it equal the last tokens of the sequence, up to ``most``.

    Kept up to date token by token: a match grows by one where the new token occurs again, and ends elsewhere.
    """

    __slots__ = ("_count", "_lengths", "_most", "_tokens", "breakers")

    def __init__(self, tokens: Sequence[int], most: int, breakers: frozenset[int] = frozenset()) -> None:
        self.breakers = breakers  # tokens that no match contains
        self._most = most
        known = max(0, len(tokens) - most)  # matches no longer than ``most`` follow from the last tokens alone
        self._tokens = np.zeros(2 * len(tokens) + 64, np.int64)
        self._tokens[:known] = tokens[:known]
        self._lengths = np.zeros(len(self._tokens), np.int64)
        self._count = known
        for token in tokens[known:]:
            self.append(token)

    def append(self, token: int) -> None:
        """The sequence has one more token."""
        count = self._count
        if count == len(self._tokens):
            self._tokens, self._lengths = (np.concatenate([a, np.zeros_like(a)]) for a in (self._tokens, self._lengths))
        self._tokens[count] = token
        self._count = count + 1
        lengths = self._lengths[:count]
        if token in self.breakers:
            lengths[:] = 0
            return
        lengths[1:] = np.minimum(lengths[:-1] + 1, self._most)
        lengths[:1] = min(1, self._most)
        lengths *= self._tokens[:count] == token

    def followers(self, shortest: int, window: int = 0) -> tuple[Ids, Ids]:
        """Tokens that followed a match of at least ``shortest`` tokens, and how long each match was.

        ``window``: only the last so many tokens of the sequence count; 0: all.
        """
        count = self._count
        start = max(0, count - window) if window else 0
        lengths = self._lengths[start : max(start, count - 1)]
        if start:
            lengths = np.minimum(lengths, np.arange(1, len(lengths) + 1))
        at = np.flatnonzero(lengths >= shortest)
        return self._tokens[start + 1 + at], lengths[at]

    def distinct(self) -> Ids:
        """The distinct tokens of the sequence."""
        return np.unique(self._tokens[: self._count])


class Dry:
    """Lowers tokens that would go on with a passage that occurred before, by multiplier * base ^ (length - allowed)."""

    __slots__ = ("_matches", "_options")

    def __init__(self, options: GenerationOptions, prompt: Sequence[int]) -> None:
        breakers = frozenset(item for item in options.dry_sequence_breakers if isinstance(item, int))
        assert len(breakers) == len(options.dry_sequence_breakers), "texts are resolved first (breakers.py)"
        self._options = options
        self._matches = SuffixMatches(prompt, LONGEST_MATCH, breakers)

    def accept(self, token: int) -> None:
        """A token joins the output."""
        self._matches.append(token)

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        options = self._options
        ids, lengths = self._matches.followers(options.dry_allowed_length, options.dry_range)
        order = np.argsort(lengths, kind="stable")  # the longest match of a token comes last, and stays
        longest = dict(zip(ids[order].tolist(), lengths[order].tolist(), strict=True))
        for token, length in longest.items():
            if token < len(row) and token not in self._matches.breakers:
                penalty = options.dry_multiplier * options.dry_base ** (length - options.dry_allowed_length)
                row[token] = float(row[token]) - min(penalty, LARGEST_PENALTY)


class NoRepeatNgram:
    """Bans tokens that would complete an n-gram that prompt or output already has."""

    __slots__ = ("_matches", "_size")

    def __init__(self, options: GenerationOptions, prompt: Sequence[int]) -> None:
        self._size = options.no_repeat_ngram_size
        self._matches = SuffixMatches(prompt, self._size - 1)

    def accept(self, token: int) -> None:
        """A token joins the output."""
        self._matches.append(token)

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        ids = self._matches.distinct() if self._size == 1 else self._matches.followers(self._size - 1)[0]
        row[ids[ids < len(row)]] = -np.inf

"""Drafts looked up in the sequence itself: what followed the last time the same few tokens came (prompt lookup).

The longest match wins, and among equally long ones the most recent. The index grows with the sequence: each new token
adds one entry per match length, and nothing is read twice. It takes about 150 bytes per token and match length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from genai_pipeline.speculative.drafter import Drafter, Proposal, Source, Target, Want

SEEN_BACK = 32  # a match is followed back so far to learn how long it really is

# A longer match is likelier to go on. What is expected of one of at least so many tokens, until it has been seen:
PRIORS = ((1, 0.25), (2, 0.35), (3, 0.5), (5, 0.65), (9, 0.8), (17, 0.9))


class Match(NamedTuple):
    """``at`` is the index of the token that followed the earlier occurrence; ``length`` the tokens that match."""

    at: int
    length: int


class MatchIndex:
    """Where each run of n tokens last occurred, for n in [shortest, longest], over a sequence that grows."""

    def __init__(self, shortest: int, longest: int) -> None:
        assert 1 <= shortest <= longest
        self._lengths = tuple(range(longest, shortest - 1, -1))
        self._after: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._lengths}
        self._known = 0  # tokens whose predecessors are in the index

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in the tokens that are new since the last call."""
        for at in range(max(1, self._known), len(tokens)):
            for n in self._lengths:
                if n <= at:
                    self._after[n][tuple(tokens[at - n : at])] = at
        self._known = len(tokens)

    def match(self, tokens: Sequence[int]) -> Match | None:
        """The latest earlier occurrence of as many of the last tokens as possible; ``tokens`` were taken in."""
        size = len(tokens)
        for n in self._lengths:
            if n < size and (at := self._after[n].get(tuple(tokens[size - n :]))) is not None:
                return Match(at, n + _matching_before(tokens, at - n, size - n))
        return None


class LookupDrafter(Drafter):
    """Prompt lookup with matches of ``min_match`` to ``max_match`` tokens; at most ``tokens`` are drafted at once."""

    def __init__(self, min_match: int, max_match: int, tokens: int) -> None:
        assert tokens >= 1
        self._shortest, self._longest, self._most = min_match, max_match, tokens
        self._indexes: dict[int, MatchIndex] = {}

    @property
    def most(self) -> int:
        """See Drafter.most."""
        return self._most

    @property
    def free(self) -> bool:
        """A look-up takes microseconds."""
        return True

    def source(self, target: Target) -> Source | None:
        """The length of the match, roughly: how likely a draft is to be right depends on it."""
        match = self._match(target)
        return None if match is None else source_of(match.length)

    def propose(self, wants: Sequence[Want]) -> Proposal:
        """See Drafter.propose."""
        return Proposal(tuple([self._draft(want) for want in wants]))

    def forget(self, sequence: int) -> None:
        """See Drafter.forget."""
        self._indexes.pop(sequence, None)

    def _draft(self, want: Want) -> tuple[int, ...]:
        match = self._match(want.target)
        if match is None:
            return ()
        return continuation(want.target.tokens, match.at, min(want.most, self._most))

    def _match(self, target: Target) -> Match | None:
        index = self._indexes.get(target.id)
        if index is None:
            index = self._indexes[target.id] = MatchIndex(self._shortest, self._longest)
        index.extend(target.tokens)
        return index.match(target.tokens)


def source_of(length: int) -> Source:
    """The source of drafts after a match of so many tokens."""
    least, prior = max(step for step in PRIORS if step[0] <= length)
    return Source(f"lookup-{least}", prior)


def continuation(tokens: Sequence[int], at: int, most: int) -> tuple[int, ...]:
    """``most`` tokens from index ``at`` on. A text that repeats itself up to its end goes on repeating itself."""
    period = len(tokens) - at
    if most <= period:
        return tuple(tokens[at : at + most])
    return tuple([tokens[at + i % period] for i in range(most)])


def _matching_before(tokens: Sequence[int], first: int, second: int) -> int:
    """How many tokens before two places are the same, up to a bound."""
    count = 0
    while count < min(first, SEEN_BACK) and tokens[first - count - 1] == tokens[second - count - 1]:
        count += 1
    return count

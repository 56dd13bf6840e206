"""What came of the drafts of one request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


def judged(drafts: Sequence[int], chosen: Sequence[int]) -> tuple[int, int]:
    """(verified, accepted) of the drafts of one run, by the tokens that were chosen at their places.

    All were verified, unless the sequence ended within those that were right.
    """
    right = next((i for i, pair in enumerate(zip(drafts, chosen, strict=False)) if pair[0] != pair[1]), None)
    if right is not None:
        return len(drafts), right
    accepted = min(len(drafts), len(chosen))
    return accepted, accepted


@dataclass(frozen=True, slots=True)
class SpeculationStats:
    """Tokens that were drafted and verified, those of them that became part of the answer, and verification runs."""

    drafted: int = 0
    accepted: int = 0
    runs: int = 0

    def __add__(self, other: SpeculationStats) -> SpeculationStats:
        """Both together, as of the choices of a request."""
        return SpeculationStats(self.drafted + other.drafted, self.accepted + other.accepted, self.runs + other.runs)

    def verified(self, drafted: int, accepted: int) -> SpeculationStats:
        """With one more verification run."""
        assert 0 <= accepted <= drafted
        return SpeculationStats(self.drafted + drafted, self.accepted + accepted, self.runs + 1)

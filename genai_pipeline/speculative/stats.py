"""What came of the drafts of one request."""

from __future__ import annotations

from dataclasses import dataclass


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

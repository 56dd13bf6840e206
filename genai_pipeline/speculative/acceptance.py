"""How likely drafted tokens are to be accepted, per sequence and source, learned from what was verified.

A verification of k drafts with j accepted is j successes, and a failure where j < k. Old ones fade. A sequence begins
with what the loop has seen of the same source, and the loop with what the source expects of itself (``Source.prior``);
each counts as a few trials.
"""

from __future__ import annotations

from dataclasses import dataclass

from genai_pipeline.speculative.drafter import Source

HIGHEST = 0.98  # nothing is certain: bounds the length of drafts
SEQUENCE_MEMORY = 0.85  # what is left of older trials of a sequence after each verification
LOOP_MEMORY = 0.98
SEQUENCE_TRIALS = 3.0  # what the loop's experience counts for in a sequence
LOOP_TRIALS = 4.0  # what a source's prior counts for in the loop


class Acceptance:
    """Acceptance rates of one loop."""

    def __init__(self) -> None:
        self._loop: dict[str, _Trials] = {}
        self._sequences: dict[int, dict[str, _Trials]] = {}

    def rate(self, sequence: int, source: Source) -> float:
        """The probability that a drafted token is accepted when those before it were."""
        rate = self._loop.get(source.name, _NONE).rate(source.prior, LOOP_TRIALS)
        own = self._sequences.get(sequence, {}).get(source.name, _NONE)
        return min(HIGHEST, own.rate(rate, SEQUENCE_TRIALS))

    def verified(self, sequence: int, source: Source, drafted: int, accepted: int) -> None:
        """Of so many drafted tokens the first ``accepted`` were right."""
        trials = accepted + (accepted < drafted)
        self._loop.setdefault(source.name, _Trials()).add(accepted, trials, LOOP_MEMORY)
        own = self._sequences.setdefault(sequence, {})
        own.setdefault(source.name, _Trials()).add(accepted, trials, SEQUENCE_MEMORY)

    def forget(self, sequence: int) -> None:
        """A sequence has ended."""
        self._sequences.pop(sequence, None)


@dataclass(slots=True)
class _Trials:
    """Faded counts."""

    successes: float = 0.0
    total: float = 0.0

    def add(self, successes: int, total: int, memory: float) -> None:
        self.successes = memory * self.successes + successes
        self.total = memory * self.total + total

    def rate(self, expected: float, weight: float) -> float:
        """The rate seen, with ``expected`` counting as ``weight`` trials."""
        return (self.successes + weight * expected) / (self.total + weight)


_NONE = _Trials()


def expected_tokens(rate: float, drafts: int) -> float:
    """Tokens that verifying ``drafts`` drafts gives on average, the one after the last right draft included.

    The sum of rate^i for i in [0, drafts] (Leviathan et al. 2023, equation 1).
    """
    return float(drafts + 1) if rate >= 1 else (1 - rate ** (drafts + 1)) / (1 - rate)

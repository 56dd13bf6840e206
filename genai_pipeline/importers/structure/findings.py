"""A finding: what something is, how sure that is, why, and what else it could be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Confidence = Literal["certain", "likely", "open"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``value`` is the answer (the best one where it is not certain, "" where there is none).

    Only ``certain`` may be written without a question: the structure leaves one answer, or a usual name agrees with it.
    """

    value: str
    confidence: Confidence
    reason: str
    alternatives: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.confidence == "certain"

    @property
    def question(self) -> str:
        """The finding as the text of a question, with what it could be."""
        choices = tuple(dict.fromkeys((self.value, *self.alternatives))) if self.value else self.alternatives
        return f"{self.reason}: {' | '.join(choices)}" if choices else self.reason


def certain(value: str, reason: str) -> Finding:
    """A finding that leaves nothing open."""
    return Finding(value, "certain", reason)


def unclear(reason: str, *alternatives: str) -> Finding:
    """A finding without an answer."""
    return Finding("", "open", reason, alternatives)

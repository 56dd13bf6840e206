"""Who comes first. A policy ranks sequences; the lowest rank runs first and is preempted last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from genai_pipeline.scheduler.ticket import Priority

AGING_STEPS = 512  # steps in the system that are worth one level of priority

Rank = tuple[int, ...]


class Asks(Protocol):
    """What a ticket says about importance."""

    @property
    def priority(self) -> Priority:
        """How much it matters."""

    @property
    def key(self) -> str:
        """Whose share of the machine it uses."""


class Ranked(Protocol):
    """A sequence or a job, as policies see it."""

    @property
    def ticket(self) -> Asks:
        """What was asked."""

    @property
    def arrival(self) -> int:
        """Order of submission."""

    @property
    def since(self) -> int:
        """Step of submission, from which waiting counts."""


class Policy(Protocol):
    """Orders sequences and jobs. Ranks must be distinct and must not let anybody wait for ever: see ``level``."""

    def rank(self, tracked: Ranked, step: int, served: Mapping[str, int]) -> Rank:
        """Sort key at ``step``; ``served`` counts the tokens computed for each key that has sequences."""


def level(tracked: Ranked, step: int) -> int:
    """Priority with aging: everybody reaches the highest level in time, where the oldest comes first."""
    return min(Priority.HIGH, tracked.ticket.priority + (step - tracked.since) // AGING_STEPS)


class FirstCome:
    """In order of arrival, whatever the priority."""

    def rank(self, tracked: Ranked, step: int, served: Mapping[str, int]) -> Rank:
        """Arrival."""
        return (tracked.arrival,)


class ByPriority:
    """Higher level first, then in order of arrival."""

    def rank(self, tracked: Ranked, step: int, served: Mapping[str, int]) -> Rank:
        """Level, arrival."""
        return (-level(tracked, step), tracked.arrival)


class FairShare:
    """Higher level first, then the key that was served least. The highest level is in order of arrival by age."""

    def rank(self, tracked: Ranked, step: int, served: Mapping[str, int]) -> Rank:
        """Level, tokens served to the key, arrival; who has aged up to the top comes before the rest of it."""
        aged = step - tracked.since >= AGING_STEPS * (1 + Priority.HIGH)
        share = 0 if aged else 1 + served.get(tracked.ticket.key, 0)
        return (-level(tracked, step), share, tracked.arrival)


POLICIES: Mapping[str, type[FirstCome] | type[ByPriority] | type[FairShare]] = {
    "priority": ByPriority,
    "first_come": FirstCome,
    "fair_share": FairShare,
}

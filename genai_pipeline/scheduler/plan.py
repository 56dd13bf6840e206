"""What one engine step does: who leaves, who enters, and a list of runs over spans of sequences. Integers only."""

from __future__ import annotations

from typing import Literal, NamedTuple

# Named tuples rather than dataclasses: several are made per decode step, and they cost a third.


class Span(NamedTuple):
    """Tokens [start, stop) of one sequence, run on top of ``start`` tokens of past.

    The last ``num_drafts`` of them are drafts: each counts only if the token chosen at its place is the same.
    """

    sequence: int
    start: int
    stop: int
    samples: bool  # whether a token is chosen after ``stop``, and after each token that a draft follows
    num_drafts: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens this span runs."""
        return self.stop - self.start


class Run(NamedTuple):
    """Spans of one decode loop that share a graph run."""

    kind: Literal["prefill", "decode"]
    loop: str
    spans: tuple[Span, ...]


class Preemption(NamedTuple):
    """A running sequence gives up row and pages: its state is kept outside (swap) or computed again (recompute)."""

    sequence: int
    by: Literal["swap", "recompute"]


class SideRun(NamedTuple):
    """Jobs that share one run of a graph outside all loops; it goes to the side lane, beside this and later steps."""

    stage: str
    jobs: tuple[int, ...]


class StepPlan(NamedTuple):
    """One step in order: preemptions, admissions (which first run in the next step), the start of a side run, runs."""

    runs: tuple[Run, ...]
    admitted: tuple[int, ...] = ()
    preempted: tuple[Preemption, ...] = ()
    side: SideRun | None = None

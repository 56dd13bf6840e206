"""What the engine tells those who watch it: one call per decision, graph run and ending, all on the engine thread.

Telemetry and traces listen; the engine knows neither. A call costs a few attribute increments, and none is made per
token. Moments are on the clock of ``time.perf_counter``, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from genai_pipeline.engine.batch import Batch
    from genai_pipeline.engine.job import Job
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence
    from genai_pipeline.engine.side_lane import SideResult
    from genai_pipeline.scheduler.plan import StepPlan
    from genai_pipeline.types import FinishReason


class Listener(Protocol):
    """Hears of everything an engine does. ``refused`` is the one call that comes from the callers' threads."""

    def refused(self) -> None:
        """A request was turned away at submission."""

    def entered(self, state: RequestState) -> None:
        """A request was accepted."""

    def queued(self, sequences: Seq[Sequence]) -> None:
        """Sequences wait for a row."""

    def planned(self, plan: StepPlan, started: float, stopped: float) -> None:
        """The scheduler planned a step, which may be empty."""

    def preempted(self, sequence: Sequence, *, kept: bool) -> None:
        """A sequence lost its row; its state is kept outside, or will be computed again."""

    def admitted(self, sequence: Sequence) -> None:
        """A sequence got a row, and the state that could be put back instead of computed; after a preemption too."""

    def ran(self, kind: str, batch: Batch, started: float, stopped: float, num_chosen: int) -> None:
        """A graph run succeeded: every row of ``batch`` computed its tokens, and ``num_chosen`` were chosen."""

    def starts_aside(self, jobs: Seq[Job]) -> None:
        """Jobs go to the side lane as one run."""

    def ran_aside(self, result: SideResult) -> None:
        """A run outside loops is over, in the side lane."""

    def failed(self, kind: str, batch: Batch) -> None:
        """A graph run failed; its rows are run again alone, unless it had one row."""

    def left(self, sequence: Sequence) -> None:
        """A sequence ended or was given up, whether it had a row or not."""

    def ended(self, state: RequestState, reason: FinishReason) -> None:
        """A request ended."""

    def close(self) -> None:
        """The engine has stopped; nothing follows."""


class Listeners:
    """Several listeners as one, called in order."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners

    def refused(self) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.refused()

    def entered(self, state: RequestState) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.entered(state)

    def queued(self, sequences: Seq[Sequence]) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.queued(sequences)

    def planned(self, plan: StepPlan, started: float, stopped: float) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.planned(plan, started, stopped)

    def preempted(self, sequence: Sequence, *, kept: bool) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.preempted(sequence, kept=kept)

    def admitted(self, sequence: Sequence) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.admitted(sequence)

    def ran(self, kind: str, batch: Batch, started: float, stopped: float, num_chosen: int) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.ran(kind, batch, started, stopped, num_chosen)

    def starts_aside(self, jobs: Seq[Job]) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.starts_aside(jobs)

    def ran_aside(self, result: SideResult) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.ran_aside(result)

    def failed(self, kind: str, batch: Batch) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.failed(kind, batch)

    def left(self, sequence: Sequence) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.left(sequence)

    def ended(self, state: RequestState, reason: FinishReason) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.ended(state, reason)

    def close(self) -> None:
        """Tell each."""
        for listener in self._listeners:
            listener.close()

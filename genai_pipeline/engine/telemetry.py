"""Counters and gauges of one engine; docs/telemetry.md lists their names.

Counters are plain attributes that only the engine thread increments, a few per run and none per token; the one
exception, refusals, happens on callers' threads and takes a lock. Gauges are read when somebody asks. A figure that
cannot be measured is left out of the snapshot, never shown as zero.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Any

from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.types import FinishReason

if TYPE_CHECKING:
    from genai_pipeline.engine.batch import Batch
    from genai_pipeline.engine.job import Job
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence
    from genai_pipeline.engine.side_lane import SideResult

Gauge = Callable[[], Any]  # gives a number, a mapping of gauges' values, or None where it cannot be measured now


class Telemetry:
    """What one engine has done since it started; a Listener.

    ``gauges`` are read at each snapshot, by name. Without ``prefix_cache`` there are no cached tokens to count.
    """

    def __init__(self, gauges: Mapping[str, Gauge] | None = None, *, prefix_cache: bool = False) -> None:
        self._gauges = dict(gauges or {})
        self._started = time.perf_counter()
        self._refusals = threading.Lock()
        self._prefix_cache = prefix_cache
        self._unplanned: set[RequestState] = set()  # requests that no plan has seen yet
        self._planned: set[RequestState] = set()  # requests that the last plan was the first to see
        self._entering: set[RequestState] = set()  # requests of which nothing has run yet
        self._unplaced: set[int] = set()  # sequences that never had a row
        self.num_refused = 0
        self.num_submitted = 0
        self.num_capped = 0
        self.num_queued = 0
        self.num_admitted = 0
        self.endings: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.num_steps = 0
        self.num_failed_runs = 0
        self.rows: dict[str, Counter[int]] = {}  # kind of run -> rows -> runs
        self.preemptions: Counter[str] = Counter()
        self.cached_tokens = 0

    def refused(self) -> None:
        """Count a request turned away; from any thread."""
        with self._refusals:
            self.num_refused += 1

    def entered(self, state: RequestState) -> None:
        """Count a request and whether its limit was capped: the one thing notes tell of before a request runs."""
        self.num_submitted += 1
        self.num_capped += bool(state.notes)
        self._unplanned.add(state)
        self._entering.add(state)

    def queued(self, sequences: Seq[Sequence]) -> None:
        """Remember whose cached tokens are not counted yet."""
        self._unplaced.update(sequence.id for sequence in sequences)

    def planned(self, plan: StepPlan, started: float, stopped: float) -> None:
        """Count the step, and the requests that the plan before left waiting though they were new."""
        if plan.runs:
            self.num_steps += 1
        if self._planned or self._unplanned:
            self.num_queued += len(self._planned & self._entering)
            self._planned, self._unplanned = self._unplanned, set()

    def preempted(self, sequence: Sequence, *, kept: bool) -> None:
        """Count by what became of the state."""
        self.preemptions["swap" if kept else "recompute"] += 1

    def admitted(self, sequence: Sequence) -> None:
        """Count a request's first row, and the prompt tokens that the prefix cache gave a sequence."""
        self._begins(sequence.request)
        if sequence.id in self._unplaced:
            self._unplaced.discard(sequence.id)
            self.cached_tokens += sequence.num_cached

    def ran(self, kind: str, batch: Batch, started: float, stopped: float, num_chosen: int) -> None:
        """Count the run by kind and rows, and its tokens."""
        rows = self.rows.get(kind)
        if rows is None:
            rows = self.rows[kind] = Counter()
        rows[batch.size] += 1
        self.generated_tokens += num_chosen
        if kind == "prefill":
            self.prompt_tokens += sum(batch.counts)

    def starts_aside(self, jobs: Seq[Job]) -> None:
        """Count the requests of which nothing has run before."""
        for job in jobs:
            self._begins(job.request)

    def ran_aside(self, result: SideResult) -> None:
        """Count the run by its rows."""
        self.rows.setdefault("aside", Counter())[sum(job.rows for job in result.jobs)] += 1

    def failed(self, kind: str, batch: Batch) -> None:
        """Count the failed run."""
        self.num_failed_runs += 1

    def left(self, sequence: Sequence) -> None:
        """Forget the sequence."""
        self._unplaced.discard(sequence.id)

    def ended(self, state: RequestState, reason: FinishReason) -> None:
        """Count the request by how it ended, and forget it."""
        self.endings[reason] += 1
        self.num_queued += state in self._planned and state in self._entering
        for waiting in (self._unplanned, self._planned, self._entering):
            waiting.discard(state)

    def close(self) -> None:
        """Nothing is held; counters stay readable."""

    def _begins(self, state: RequestState) -> None:
        if state in self._entering:
            self._entering.discard(state)
            self.num_admitted += 1

    def snapshot(self) -> dict[str, Any]:
        """All figures as plain JSON; from any thread, each one as of some moment during the call."""
        endings = dict(self.endings)
        rows = {kind: dict(counts) for kind, counts in dict(self.rows).items()}
        counted = {
            "uptime_seconds": time.perf_counter() - self._started,
            "requests": {
                "submitted": self.num_submitted,
                "refused": self.num_refused,
                "capped": self.num_capped,
                "queued": self.num_queued,
                "admitted": self.num_admitted,
                "cancelled": endings.pop("cancelled", 0),
                "failed": endings.pop("error", 0),
                "finished": endings,
            },
            "tokens": {
                "prompt": self.prompt_tokens,
                "cached": self.cached_tokens if self._prefix_cache else None,
                "generated": self.generated_tokens,
            },
            "steps": self.num_steps,
            "runs": {**{kind: sum(counts.values()) for kind, counts in rows.items()}, "failed": self.num_failed_runs},
            "rows": {kind: {str(size): n for size, n in sorted(counts.items())} for kind, counts in rows.items()},
            "preemptions": {by: self.preemptions[by] for by in ("swap", "recompute")},
        }
        return _measured({**counted, **{name: gauge() for name, gauge in self._gauges.items()}})


def _measured(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Figures without those that are None, at any depth."""
    return {
        name: _measured(value) if isinstance(value, Mapping) else value
        for name, value in figures.items()
        if value is not None
    }

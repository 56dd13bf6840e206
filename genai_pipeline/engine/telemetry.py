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

if TYPE_CHECKING:
    from genai_pipeline.engine.batch import Batch
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence

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
        self._unplanned: set[int] = set()  # first sequences of requests that no plan has seen yet
        self._entering: set[int] = set()  # first sequences of requests that never had a row
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
        first = state.sequences[0].id
        self._unplanned.add(first)
        self._entering.add(first)

    def queued(self, sequences: Seq[Sequence]) -> None:
        """Remember whose cached tokens are not counted yet."""
        self._unplaced.update(sequence.id for sequence in sequences)

    def planned(self, plan: StepPlan, started: float, stopped: float) -> None:
        """Count the step, its preemptions, and the requests that it left waiting though they are new."""
        if plan.runs:
            self.num_steps += 1
        for preemption in plan.preempted:
            self.preemptions[preemption.by] += 1
        if self._unplanned:
            self.num_queued += len(self._unplanned.difference(plan.admitted))
            self._unplanned.clear()

    def admitted(self, sequence: Sequence) -> None:
        """Count a request's first row, and the prompt tokens that the prefix cache gave a sequence."""
        if sequence.id in self._entering:
            self._entering.discard(sequence.id)
            self.num_admitted += 1
        if sequence.id in self._unplaced:
            self._unplaced.discard(sequence.id)
            self.cached_tokens += sequence.num_cached

    def ran(self, kind: str, batch: Batch, started: float, stopped: float) -> None:
        """Count the run by kind and rows, and its tokens."""
        rows = self.rows.get(kind)
        if rows is None:
            rows = self.rows[kind] = Counter()
        rows[batch.size] += 1
        self.generated_tokens += sum(batch.samples)
        if kind == "prefill":
            self.prompt_tokens += sum(batch.counts)

    def failed(self, kind: str, batch: Batch) -> None:
        """Count the failed run."""
        self.num_failed_runs += 1

    def left(self, sequence: Sequence) -> None:
        """Forget the sequence."""
        for waiting in (self._unplanned, self._entering, self._unplaced):
            waiting.discard(sequence.id)

    def ended(self, state: RequestState) -> None:
        """Count the request by how it ended."""
        self.endings[state.sequences[0].finish_reason or "error"] += 1

    def close(self) -> None:
        """Nothing is held; counters stay readable."""

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

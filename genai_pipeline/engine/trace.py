"""A trace of an engine in the Trace Event Format: decisions, graph runs, and a span per sequence; Perfetto opens it.

Events are written as they happen (a crash leaves a readable file), so memory stays bounded; after ``MAX_EVENTS`` the
trace goes on counting what it leaves out. The format is the array form of
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, times in microseconds.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genai_pipeline.errors import OptionError

if TYPE_CHECKING:
    from genai_pipeline.engine.batch import Batch
    from genai_pipeline.engine.job import Job
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence
    from genai_pipeline.engine.side_lane import SideResult
    from genai_pipeline.scheduler.plan import StepPlan
    from genai_pipeline.types import FinishReason

MAX_EVENTS = 5_000_000  # about 700 MB

_log = logging.getLogger(__name__)
_ENGINE, _GRAPHS, _ASIDE = 1, 2, 3  # tracks: planning and decisions, graph runs of loops, those outside


class TraceFile:
    """Appends events to a file, from any thread. Trouble while writing ends the trace, with a warning, not the work."""

    def __init__(self, path: str | Path, *, max_events: int = MAX_EVENTS) -> None:
        """Create the file. Raises OptionError when that is not possible."""
        self.path = Path(path)
        try:
            self._file = self.path.open("w", encoding="utf-8", buffering=1 << 20)
        except OSError as error:
            raise OptionError(f"the trace cannot be written to {path}: {error.strerror}", param="profile") from error
        self._lock = threading.Lock()
        self._zero = time.perf_counter()
        self._max_events = max_events
        self._num_events = 0
        self._lost = 0
        self._broken = False
        self._put({"ph": "M", "name": "process_name", "args": {"name": "genai_pipeline"}})

    def event(self, ph: str, name: str, at: float, **more: Any) -> None:
        """One event at ``at`` seconds on the clock of time.perf_counter; ``more`` are further fields of the format."""
        self._put({"ph": ph, "name": name, "ts": round((at - self._zero) * 1e6, 1), **more})

    def slice(self, name: str, tid: int, started: float, stopped: float, args: dict[str, Any]) -> None:
        """An event with a duration, on a track."""
        self.event("X", name, started, tid=tid, dur=round((stopped - started) * 1e6, 1), args=args)

    def track(self, tid: int, name: str) -> None:
        """Name a track."""
        self._put({"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": name}})

    def close(self) -> None:
        """End the array and the file. Harmless when that has happened."""
        with self._lock:
            if self._file.closed:
                return
            try:
                if self._lost:
                    left_out = {"ph": "M", "name": "events_left_out", "pid": 1, "args": {"count": self._lost}}
                    self._file.write(f",\n{json.dumps(left_out)}")
                self._file.write("\n]\n")
                self._file.close()
            except OSError as error:
                self._give_up(error)

    def _put(self, event: dict[str, Any]) -> None:
        text = json.dumps({"pid": 1, **event}, separators=(",", ":"))
        with self._lock:
            if self._broken or self._file.closed:
                return
            if self._num_events >= self._max_events:
                self._lost += 1
                return
            try:
                self._file.write(("[\n" if self._num_events == 0 else ",\n") + text)
            except OSError as error:
                self._give_up(error)
            self._num_events += 1

    def _give_up(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            _log.warning("the trace %s ends early: %s", self.path, error)


class Tracer:
    """Writes what an engine does into a trace; a Listener."""

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._phases: dict[int, str] = {}  # sequence -> its open phase
        self._running = 0
        file.track(_ENGINE, "engine")
        file.track(_GRAPHS, "graph runs")
        file.track(_ASIDE, "graph runs outside loops")

    def refused(self) -> None:
        """Mark the moment."""
        self._instant("refuse", time.perf_counter())

    def entered(self, state: RequestState) -> None:
        """Nothing: its sequences follow."""

    def queued(self, sequences: Seq[Sequence]) -> None:
        """Open a span for each sequence, and in it that it waits."""
        now = time.perf_counter()
        for sequence in sequences:
            args = {
                "loop": sequence.loop,
                "choice": sequence.choice,
                "prompt_tokens": sequence.num_prompt,
                "max_tokens": sequence.max_tokens,
            }
            self._span("b", sequence.id, f"sequence {sequence.id}", now, args=args)
            self._enter(sequence.id, "queued", now)
        self._count(now)

    def planned(self, plan: StepPlan, started: float, stopped: float) -> None:
        """The decision with its duration."""
        if not any(plan):
            return
        args = {"runs": len(plan.runs), "admitted": len(plan.admitted), "preempted": len(plan.preempted)}
        self._file.slice("plan", _ENGINE, started, stopped, args)

    def preempted(self, sequence: Sequence, *, kept: bool) -> None:
        """The sequence waits again."""
        now = time.perf_counter()
        self._instant("preempt", now, sequence=sequence.id, by="swap" if kept else "recompute")
        self._enter(sequence.id, "preempted", now)
        self._running -= 1
        self._count(now)

    def admitted(self, sequence: Sequence) -> None:
        """The sequence has a row from here on."""
        now = time.perf_counter()
        self._instant("admit", now, sequence=sequence.id, row=sequence.row, restored=sequence.num_computed)
        decoding = sequence.num_generated > 0 and sequence.num_computed == len(sequence.tokens) - 1
        self._enter(sequence.id, "decode" if decoding else "prefill", now)
        self._running += 1
        self._count(now)

    def ran(self, kind: str, batch: Batch, started: float, stopped: float, num_chosen: int) -> None:
        """The run with its duration; rows that sampled for the first time decode from here on."""
        counts = batch.counts
        args = {
            "loop": batch.sequences[0].loop,
            "rows": batch.size,
            "tokens": sum(counts),
            "width": batch.width,
            "past": max(batch.starts),
        }
        self._file.slice(kind, _GRAPHS, started, stopped, args)
        if kind != "prefill":
            return
        for sequence, samples in zip(batch.sequences, batch.samples, strict=True):
            if samples and self._phases.get(sequence.id) == "prefill":
                self._enter(sequence.id, "decode", stopped)

    def starts_aside(self, jobs: Seq[Job]) -> None:
        """Nothing: the run follows when it is over."""

    def ran_aside(self, result: SideResult) -> None:
        """The run with its duration, on a track of its own."""
        args = {"rows": sum(job.rows for job in result.jobs), "requests": len(result.jobs)}
        self._file.slice(result.jobs[0].stage, _ASIDE, result.started, result.stopped, args)

    def failed(self, kind: str, batch: Batch) -> None:
        """Mark the moment."""
        self._instant("failed run", time.perf_counter(), kind=kind, rows=batch.size)

    def left(self, sequence: Sequence) -> None:
        """Close the sequence's spans."""
        phase = self._phases.pop(sequence.id, None)
        if phase is None:
            return
        now = time.perf_counter()
        self._span("e", sequence.id, phase, now)
        args = {"finish_reason": sequence.finish_reason, "generated": sequence.num_generated}
        self._span("e", sequence.id, f"sequence {sequence.id}", now, args=args)
        self._running -= phase in ("prefill", "decode")
        self._count(now)

    def ended(self, state: RequestState, reason: FinishReason) -> None:
        """Nothing: its sequences have left."""

    def close(self) -> None:
        """Complete the file."""
        self._file.close()

    def _enter(self, sequence: int, phase: str, at: float) -> None:
        before = self._phases.get(sequence)
        if before is not None:
            self._span("e", sequence, before, at)
        self._phases[sequence] = phase
        self._span("b", sequence, phase, at)

    def _count(self, at: float) -> None:
        args = {"running": self._running, "waiting": len(self._phases) - self._running}
        self._file.event("C", "sequences", at, args=args)

    def _instant(self, name: str, at: float, **args: Any) -> None:
        self._file.event("i", name, at, tid=_ENGINE, s="t", args=args)

    def _span(self, ph: str, sequence: int, name: str, at: float, **more: Any) -> None:
        self._file.event(ph, name, at, cat="sequence", id=sequence, tid=_ENGINE, **more)

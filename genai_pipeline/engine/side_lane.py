"""The side lane: a thread that runs graphs outside loops, one batch at a time, so that no decode row waits for them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from genai_pipeline.engine.interruption import CurrentRun, RunGivenUpError
from genai_pipeline.engine.job import Arrays, Job, JobStage
from genai_pipeline.errors import EngineClosedError, GenaiError


class SideResult(NamedTuple):
    """What a run gave: per job its outputs by value key, or the error that ends its request.

    None: the run was given up, as all these requests were.
    """

    jobs: tuple[Job, ...]
    outputs: tuple[Arrays | GenaiError, ...] | None
    started: float
    stopped: float


Post = Callable[[Callable[[], None]], None]  # hands a command to the engine thread


class SideLane:
    """Runs batches of jobs in the order they are given; results go to ``done`` on the engine thread."""

    def __init__(self, stages: Mapping[str, JobStage], post: Post, done: Callable[[SideResult], None]) -> None:
        self._stages = stages
        self._post = post
        self._done = done
        self.current = CurrentRun()
        self._batches: queue.SimpleQueue[tuple[Job, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="genai-side-lane", daemon=True) if stages else None
        if self._thread is not None:
            self._thread.start()

    def start(self, jobs: Sequence[Job]) -> None:
        """Run jobs of one stage as a batch."""
        self._batches.put(tuple(jobs))

    def close(self) -> None:
        """End the run in progress, and stop."""
        self.current.close()
        self._batches.put(None)
        if self._thread is not None:
            self._thread.join()

    def _main(self) -> None:
        while (jobs := self._batches.get()) is not None:
            try:
                result = self._run(jobs)
            except BaseException as cause:  # noqa: BLE001 - a defect of ours: the engine thread stops with it
                self._post(lambda cause=cause: _fail(cause))  # type: ignore[misc]
                return
            self._post(lambda result=result: self._done(result))  # type: ignore[misc]

    def _run(self, jobs: tuple[Job, ...]) -> SideResult:
        """Run a batch; when it fails, its jobs alone, so that only those at fault end."""
        stage, started = self._stages[jobs[0].stage], time.perf_counter()
        try:
            outputs: tuple[Arrays | GenaiError, ...] | None = self._outputs(stage, jobs)
        except RunGivenUpError:
            outputs = None
        return SideResult(jobs, outputs, started, time.perf_counter())

    def _outputs(self, stage: JobStage, jobs: Sequence[Job]) -> tuple[Arrays | GenaiError, ...]:
        """Raises RunGivenUpError."""
        try:
            return tuple(self.current.run([job.request for job in jobs], stage.bindings, lambda: stage.run(jobs)))
        except GenaiError as error:
            return (error,) if len(jobs) == 1 else tuple([self._alone(stage, job) for job in jobs])

    def _alone(self, stage: JobStage, job: Job) -> Arrays | GenaiError:
        try:
            return self._outputs(stage, [job])[0]
        except RunGivenUpError:
            return EngineClosedError("the run was given up")  # its request has ended, or the engine closes


def _fail(cause: BaseException) -> None:
    raise cause

"""The engine thread: takes requests and cancellations in, plans and executes steps, ends requests.

Everything that mutates lives on this thread; other threads hand in commands and get events back.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from genai_pipeline.engine.listeners import Listener
from genai_pipeline.engine.op_lane import OpLane
from genai_pipeline.engine.op_stage import OpCall
from genai_pipeline.engine.outputs import Outputs
from genai_pipeline.engine.pace import Pace
from genai_pipeline.engine.request import Request, RequestState
from genai_pipeline.engine.requests import Requests, broken
from genai_pipeline.engine.side_lane import SideLane
from genai_pipeline.engine.step import Stepper
from genai_pipeline.engine.walk import Runners, Walk, Work
from genai_pipeline.errors import EngineClosedError, EngineFailedError, GenaiError, QueueFullError
from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.scheduler.scheduler import Scheduler

Command = Callable[[], None]
IDLE_SECONDS = 10.0
T = TypeVar("T")


class Engine:
    """Runs requests over the loops of one plan."""

    def __init__(
        self,
        walk: Walk,
        runners: Runners,
        outputs: Outputs,
        scheduler: Scheduler,
        paces: Mapping[str, Pace],
        listener: Listener,
        max_requests: int | None = None,
    ) -> None:
        loops = self._loops = runners.loops
        self._scheduler = scheduler
        self._walk = walk
        self._drafting = [loop.drafting for loop in loops.values() if loop.drafting is not None]
        self._listener = listener
        self._requests = Requests(
            walk, loops, outputs, scheduler, listener, self._start_op, self._post, self._end_unwanted_side_run
        )
        self._stepper = Stepper(loops, scheduler, self._requests, paces, listener)
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._side_lane = SideLane(runners.jobs, self._inbox.put, self._requests.finish_side_run)
        self._op_lane = OpLane(runners.ops, self._inbox.put, self._requests.finish_op)
        self._current_runs = (self._stepper.current, self._side_lane.current)
        self._max_requests = max_requests
        self._entering = 0  # requests in the inbox
        self._lock = threading.RLock()  # orders submissions against closing
        self._closed: GenaiError | None = None
        self._thread = threading.Thread(target=self._main, name="genai-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> RequestState:
        """Check and queue a request from any thread.

        Raises RequestError, CapacityError (QueueFullError when too many wait) or EngineClosedError.
        """
        state = RequestState(request)
        try:
            with self._lock:
                self._check_room()  # before the work of taking it in, and again after it
            work = self._begin(state)
            with self._lock:
                if self._closed is not None:
                    raise _again(self._closed)
                self._check_room()
                self._entering += 1
                self._inbox.put(lambda: self._enter(state, work))
        except GenaiError:
            self._listener.refused()
            raise
        return state

    def _post(self, command: Command) -> None:
        self._inbox.put(command)

    def _start_op(self, prepared: OpCall) -> None:
        self._op_lane.start(prepared)

    def _end_unwanted_side_run(self) -> None:
        self._side_lane.current.end_if_unwanted()

    def _begin(self, state: RequestState) -> Work:
        try:
            return self._walk.begin(state)
        except Exception as cause:
            raise broken(cause) from cause

    def _check_room(self) -> None:
        count = len(self._requests) + self._entering
        if self._max_requests is not None and count >= self._max_requests:
            message = f"{count} requests run or wait, and no more than {self._max_requests} may"
            raise QueueFullError(message, hint="try again when some have ended")

    def _enter(self, state: RequestState, work: Work) -> None:
        with self._lock:  # it is always in one of the two counts
            self._entering -= 1
            self._requests.enter(state, work)

    def cancel(self, state: RequestState) -> None:
        """End a request from any thread; its stream then ends with ``cancelled``. Harmless when it has ended.

        A run that is in progress for nobody else ends at once.
        """
        self._inbox.put(lambda: self._requests.end(state, "cancelled", None))
        state.given_up = True
        for current in self._current_runs:
            current.end_if_unwanted()

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the engine thread between two steps, and give what it gives."""
        if threading.current_thread() is self._thread:  # e.g. an iterator that is collected there
            return function()
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)
                if not isinstance(error, GenaiError):
                    raise  # a defect: the engine stops

        with self._lock:
            if self._closed is not None:
                raise _again(self._closed)
            self._inbox.put(run)
        return result.result()

    def close(self) -> None:
        """Stop the thread; requests that still run end with EngineClosedError, and runs in progress at once."""
        with self._lock:
            if self._closed is None:
                self._closed = EngineClosedError("the pipeline is closed")
                self._inbox.put(lambda: None)
        for current in self._current_runs:
            current.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._side_lane.close()
            self._op_lane.close()

    def _main(self) -> None:
        try:
            while self._closed is None:
                self._take_in()
                plan = self._plan()
                assert not self._requests.live or any(plan), "live sequences, and nothing to do"
                if plan.side is not None:
                    self._side_lane.start(self._requests.start_side_run(plan.side))
                self._stepper.execute(plan)
                self._requests.expire()
            while not self._inbox.empty():
                self._inbox.get()()
            self._requests.end_all(self._closed)
        except BaseException as cause:  # noqa: BLE001 - a defect of ours must fail the waiters, not hang them
            failure = EngineFailedError(f"the engine stopped: {cause}")
            failure.__cause__ = cause
            with self._lock:
                self._closed = failure
            self._abandon(failure)

    def _take_in(self) -> None:
        """Carry out commands; wait for one when there is nothing to run."""
        if not self._requests.live and not self._scheduler.can_start_job:
            self._wait()
        for _ in range(self._inbox.qsize()):  # what these put there in turn waits for the next round
            self._inbox.get()()

    def _wait(self) -> None:
        """Carry out the next command, or go on when the time of a request runs out, which waits for the side lane.

        When nothing comes for a while, memory that ended sequences left warm is given back.
        """
        deadline = self._requests.next_deadline()
        seconds = IDLE_SECONDS if deadline is None else max(0.0, deadline - time.perf_counter())
        try:
            command = self._inbox.get(timeout=seconds)
        except queue.Empty:
            if deadline is not None:
                return
            for loop in self._loops.values():
                loop.trim()
            command = self._inbox.get()
        command()

    def _plan(self) -> StepPlan:
        started = time.perf_counter()
        for drafting in self._drafting:
            drafting.propose(self._requests.live, self._scheduler)
        plan = self._scheduler.plan()
        self._listener.planned(plan, started, time.perf_counter())
        return plan

    def _abandon(self, error: GenaiError) -> None:
        """Tell every waiter that the engine stopped, touching nothing else: its state may be broken."""
        while not self._inbox.empty():
            with suppress(Exception):  # requests that come in late are told below, calls get their own error
                self._inbox.get()()
        self._requests.abandon(error)


def _again(error: GenaiError) -> GenaiError:
    """The same error for one more caller: each has its own traceback."""
    fresh = type(error)(error.message, hint=error.hint)
    fresh.__cause__ = error.__cause__
    return fresh

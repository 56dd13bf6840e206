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

from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.listeners import Listener
from genai_pipeline.engine.pace import Pace
from genai_pipeline.engine.request import Request, RequestState
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.engine.step import Stepper
from genai_pipeline.engine.walk import Walk, last_event
from genai_pipeline.errors import EngineClosedError, EngineFailedError, GenaiError, RequestTimeoutError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.scheduler.ticket import Ticket
from genai_pipeline.types import Event, FinishReason

Command = Callable[[], None]
IDLE_SECONDS = 10.0
T = TypeVar("T")


class Engine:
    """Runs requests over the loops of one plan."""

    def __init__(
        self,
        plan: ExecutionPlan,
        loops: Mapping[str, DecodeLoop],
        scheduler: Scheduler,
        paces: Mapping[str, Pace],
        listener: Listener,
    ) -> None:
        self._loops = loops
        self._scheduler = scheduler
        self._walk = Walk(plan, loops)
        self._listener = listener
        self._live: dict[int, Sequence] = {}
        self._requests: set[RequestState] = set()
        self._stepper = Stepper(loops, scheduler, self._live, paces, self._finish_sequence, listener)
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._lock = threading.RLock()  # orders submissions against closing
        self._closed: GenaiError | None = None
        self._thread = threading.Thread(target=self._main, name="genai-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> RequestState:
        """Check and queue a request from any thread. Raises RequestError, CapacityError or EngineClosedError."""
        state = RequestState(request)
        try:
            sequences = self._walk.start_next(state)
        except GenaiError:
            self._listener.refused()
            raise
        with self._lock:
            if self._closed is not None:
                raise _again(self._closed)
            self._inbox.put(lambda: self._enter(state, sequences))
        return state

    def cancel(self, state: RequestState) -> None:
        """End a request from any thread; its stream then ends with ``cancelled``. Harmless when it has ended."""
        self._inbox.put(lambda: self._end(state, "cancelled", None))

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
        """Stop the thread; requests that still run end with EngineClosedError."""
        with self._lock:
            if self._closed is None:
                self._closed = EngineClosedError("the pipeline is closed")
                self._inbox.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _main(self) -> None:
        try:
            while self._closed is None:
                self._take_in()
                plan = self._plan()
                assert not self._live or any(plan), "live sequences, and nothing to do"
                self._stepper.execute(plan)
                self._expire()
            while not self._inbox.empty():
                self._inbox.get()()
            for state in list(self._requests):
                self._end(state, "error", self._closed)
        except BaseException as cause:  # noqa: BLE001 - a defect of ours must fail the waiters, not hang them
            failure = EngineFailedError(f"the engine stopped: {cause}")
            failure.__cause__ = cause
            with self._lock:
                self._closed = failure
            self._abandon(failure)

    def _take_in(self) -> None:
        """Carry out commands; wait for one when there is nothing to run."""
        if not self._live:
            self._wait()()
        while not self._inbox.empty():
            self._inbox.get()()

    def _wait(self) -> Command:
        """The next command; when none comes for a while, memory that ended sequences left warm is given back."""
        try:
            return self._inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            for loop in self._loops.values():
                loop.trim()
            return self._inbox.get()

    def _plan(self) -> StepPlan:
        started = time.perf_counter()
        plan = self._scheduler.plan()
        self._listener.planned(plan, started, time.perf_counter())
        return plan

    def _enter(self, state: RequestState, sequences: list[Sequence]) -> None:
        self._requests.add(state)
        self._listener.entered(state)
        self._queue(sequences)

    def _queue(self, sequences: list[Sequence]) -> None:
        for sequence in sequences:
            self._live[sequence.id] = sequence
            self._scheduler.submit(_ticket(sequence))
        self._listener.queued(sequences)

    def _finish_sequence(self, sequence: Sequence) -> None:
        """A sequence has its finish reason: free what it holds, and move its request on when it was the last."""
        self._drop(sequence)
        state = sequence.request
        if sequence.error is not None:
            self._end(state, "error", sequence.error)
            return
        held = sequence.text.finish()
        if any(other.finish_reason is None for other in state.sequences):
            if self._walk.in_last_loop(state):
                self._emit_end(sequence, held, None)
            return
        self._walk.publish(state)
        self._go_on(sequence, held)

    def _go_on(self, ended: Sequence, held: str) -> None:
        """Start the request's next loop, or end the request with its outputs."""
        state = ended.request
        try:
            following = self._walk.start_next(state)
        except GenaiError as error:
            self._end(state, "error", error)
            return
        if following:
            if held and self._loops[ended.loop].rules.streams:
                state.request.emit(Event(index=ended.choice, text=held))
            self._queue(following)
            return
        self._emit_end(ended, held, self._walk.outputs(state))
        self._close_request(state)

    def _end(self, state: RequestState, reason: FinishReason, error: BaseException | None) -> None:
        """End a request before its walk is over."""
        if state.done:
            return
        ending = [s for s in state.sequences if s.id in self._live or s.error is not None] or state.sequences[:1]
        for sequence in ending:
            if sequence.id in self._live:
                self._drop(sequence)
            sequence.finish_reason, sequence.error = reason, error
        for sequence in ending[:-1]:
            self._emit_end(sequence, sequence.text.finish(), None)
        self._emit_end(ending[-1], ending[-1].text.finish(), {})
        self._close_request(state)

    def _emit_end(self, sequence: Sequence, text: str, outputs: Mapping[str, object] | None) -> None:
        released = text if self._loops[sequence.loop].rules.streams else ""
        sequence.request.request.emit(last_event(sequence, released, outputs))

    def _drop(self, sequence: Sequence) -> None:
        self._live.pop(sequence.id, None)
        self._scheduler.finish(sequence.id)
        self._loops[sequence.loop].close(sequence)
        self._listener.left(sequence)

    def _close_request(self, state: RequestState) -> None:
        state.done = True
        self._requests.discard(state)
        self._listener.ended(state)
        state.request.emit(None)

    def _expire(self) -> None:
        now = time.perf_counter()
        late = [s for s in self._requests if (deadline := s.request.queueing.deadline) is not None and deadline < now]
        for state in late:
            self._end(state, "error", RequestTimeoutError("the request's timeout ran out"))

    def _abandon(self, error: GenaiError) -> None:
        """Tell every waiter that the engine stopped, touching nothing else: its state may be broken."""
        while not self._inbox.empty():
            with suppress(Exception):  # requests that come in late are told below, calls get their own error
                self._inbox.get()()
        for state in self._requests:
            with suppress(Exception):
                state.request.emit(Event(finish_reason="error", error=error))
                state.request.emit(None)
        self._requests.clear()


def _again(error: GenaiError) -> GenaiError:
    """The same error for one more caller: each has its own traceback."""
    fresh = type(error)(error.message, hint=error.hint)
    fresh.__cause__ = error.__cause__
    return fresh


def _ticket(sequence: Sequence) -> Ticket:
    """What the scheduler is told of a new sequence."""
    request = sequence.request.request
    return Ticket(
        sequence.id,
        sequence.loop,
        num_tokens=sequence.num_prompt,
        max_tokens=sequence.num_prompt + sequence.max_tokens,
        priority=request.queueing.priority,
        key=request.queueing.key,
        after=None if sequence.source is None else sequence.source.id,
    )

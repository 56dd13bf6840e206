"""Moves requests along their stages: starts what is ready, takes what has ended, emits their last events."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from genai_pipeline.engine.beams import Search, SearchQueue
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.events import choice_end, only_end, request_end
from genai_pipeline.engine.job import Job
from genai_pipeline.engine.listeners import Listener
from genai_pipeline.engine.op_lane import Outcome
from genai_pipeline.engine.op_stage import OpCall
from genai_pipeline.engine.outputs import Outputs
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.scope_run import ScopeRun
from genai_pipeline.engine.sequence import Sequence as TokenSequence
from genai_pipeline.engine.side_lane import SideResult
from genai_pipeline.engine.walk import Walk, Work
from genai_pipeline.errors import GenaiError, RequestBrokenError, RequestTimeoutError
from genai_pipeline.parsing.parts import NOTHING, AnswerPart
from genai_pipeline.scheduler.plan import SideRun
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.scheduler.side_queue import JobTicket
from genai_pipeline.scheduler.ticket import ANY_CHUNKS, Chunks, Ticket
from genai_pipeline.types import Event, FinishReason

SCORED_CHUNKS = Chunks(64, 64)  # of prefill runs that read all their logits: they take much memory


class Requests:
    """All requests of an engine that have entered and not ended. Belongs to the engine thread."""

    def __init__(
        self,
        walk: Walk,
        loops: Mapping[str, DecodeLoop],
        outputs: Outputs,
        scheduler: Scheduler,
        listener: Listener,
        start_op: Callable[[OpCall], None],
        post: Callable[[Callable[[], None]], None],
        given_up: Callable[[], None],
    ) -> None:
        self.live: dict[int, TokenSequence] = {}
        self._jobs: dict[int, Job] = {}  # waiting or in the side lane
        self._states: set[RequestState] = set()
        self._walk = walk
        self._outputs = outputs
        self._start_op = start_op
        self._post = post  # has the engine thread do something in its next round
        self._given_up = given_up  # what to do when a request has ended whose job is in the side lane
        self._loops = loops
        self._searches = {id: SearchQueue(loop.rules.bounds) for id, loop in loops.items()}
        self._scheduler = scheduler
        self._listener = listener

    def __len__(self) -> int:
        return len(self._states)

    def enter(self, state: RequestState, work: Work) -> None:
        """A request that was submitted, with what it starts with."""
        self._states.add(state)
        self._listener.entered(state)
        self._carry_out(state, work)

    def start_side_run(self, run: SideRun) -> list[Job]:
        """The jobs of a side run that starts now."""
        jobs = [self._jobs[id] for id in run.jobs]
        for job in jobs:
            if job.request.admitted is None:
                job.request.admitted = time.perf_counter()
        self._listener.starts_aside(jobs)
        return jobs

    def finish_sequence(self, sequence: TokenSequence) -> None:
        """A sequence has its finish reason: free what it holds, and move its request on when it was the last."""
        self._drop(sequence)
        state, call = sequence.request, sequence.call
        if sequence.error is not None:
            self.end(state, "error", sequence.error)
            return
        assert call is not None, "a request's sequences are started by its walk"
        end = choice_end(sequence, self._flush(sequence))
        over = all(other.finish_reason is not None for other in call.sequences)
        if sequence.loop == self._walk.last_loop:
            if over:
                state.held = end
            else:
                state.request.emit(end)
        elif _says(end):
            state.request.emit(replace(end, finish_reason=None, stop_string=None))
        if over:
            self._go_on(state, lambda: self._walk.finish_loop(call))

    def end_search(self, search: Search) -> None:
        """A beam search is over, or its request: free what its beams hold, and let others start."""
        for beam in search.beams:
            if beam.id in self.live:
                self._drop(beam)
        self._searches[search.loop].leave(search)
        self._start_searches(search.loop)

    def finish_side_run(self, result: SideResult) -> None:
        """A side run is over: move its requests on, unless they have ended meanwhile."""
        self._scheduler.end_side_run([job.request.request.queueing.key for job in result.jobs])
        for job in result.jobs:
            del self._jobs[job.id]
        if result.outputs is None:  # given up; where the engine closes, their requests are told so next
            return
        self._listener.ran_aside(result)
        for job, outputs in zip(result.jobs, result.outputs, strict=True):
            job.request.graph_seconds += result.stopped - result.started
            if job.request.done:
                continue
            if isinstance(outputs, GenaiError):
                self.end(job.request, "error", outputs)
                continue
            self._go_on(job.request, lambda job=job, outputs=outputs: self._walk.finish_job(job, outputs))  # type: ignore[misc]

    def finish_op(self, prepared: OpCall, outcome: Outcome) -> None:
        """A call of an operation is over: move its request on, unless it has ended meanwhile."""
        state = prepared.call.request
        if state.done:
            return
        if isinstance(outcome, GenaiError):
            self.end(state, "error", outcome)
        else:
            self._go_on(state, lambda: self._walk.finish(prepared.call, outcome))

    def end(self, state: RequestState, reason: FinishReason, error: BaseException | None) -> None:
        """End a request before its walk is over. Harmless when it has ended."""
        if state.done:
            return
        for job in [job for job in self._jobs.values() if job.request is state]:
            if self._scheduler.forget_job(job.id):
                del self._jobs[job.id]
        ending = [s for s in state.started() if s.finish_reason is None or s.error is not None]
        for sequence in ending:
            if sequence.id in self.live:
                self._drop(sequence)
            sequence.finish_reason, sequence.error = reason, error
        for call in state.loop_calls:
            if call.search is not None:
                self.end_search(call.search)
        last = [s for s in ending if s.loop == self._walk.last_loop]
        ends = [choice_end(s, self._flush(s)) for s in last] or [Event(finish_reason=reason, error=error)]
        for end in ends[:-1]:
            state.request.emit(end)
        self._close(state, ends[-1], {})
        if any(job.request is state for job in self._jobs.values()):
            self._given_up()

    def end_all(self, error: GenaiError) -> None:
        """End every request with an error."""
        for state in list(self._states):
            self.end(state, "error", error)

    def expire(self) -> None:
        """End the requests whose time has run out."""
        now = time.perf_counter()
        for state in [s for s in self._states if (at := s.request.queueing.deadline) is not None and at < now]:
            self.end(state, "error", RequestTimeoutError("the request's timeout ran out"))

    def next_deadline(self) -> float | None:
        """When the next request's time runs out, on the clock of time.perf_counter."""
        deadlines = [s.request.queueing.deadline for s in self._states if s.request.queueing.deadline is not None]
        return min(deadlines, default=None)

    def abandon(self, error: GenaiError) -> None:
        """Tell every consumer that the engine stopped, touching nothing else: its state may be broken."""
        for state in self._states:
            with suppress(Exception):
                state.request.emit(Event(finish_reason="error", error=error))
                state.request.emit(None)
        self._states.clear()

    def _queue(self, work: Work) -> None:
        for prepared in work.ops:
            self._start_op(prepared)
        for scope in work.postponed:
            self._post(lambda scope=scope: self._resume(scope))  # type: ignore[misc]
        self._start(work.sequences)
        for search in work.searches:
            self._searches[search.loop].add(search)
            self._start_searches(search.loop)
        for job in work.jobs:
            self._jobs[job.id] = job
            queueing = job.request.request.queueing
            nbytes = sum(array.nbytes for array in job.inputs.values())
            ticket = JobTicket(job.id, job.stage, job.batch_key, queueing.priority, queueing.key, nbytes)
            self._scheduler.submit_job(ticket)

    def _start(self, sequences: Sequence[TokenSequence]) -> None:
        for sequence in sequences:
            self.live[sequence.id] = sequence
            self._scheduler.submit(_ticket(sequence))
        self._listener.queued(sequences)

    def _start_searches(self, loop: str) -> None:
        for search in self._searches[loop].enter():
            self._start(search.beams)

    def _go_on(self, state: RequestState, finish: Callable[[], Work]) -> None:
        """Take in what has ended, start what the request can start now, or end it with its outputs."""
        try:
            work = finish()
        except Exception as cause:  # noqa: BLE001 - whatever it is, it is about this request alone
            self.end(state, "error", broken(cause))
            return
        self._carry_out(state, work)

    def _resume(self, scope: ScopeRun) -> None:
        """Take the next steps of a loop that let others go first."""
        if not scope.request.done:
            self._go_on(scope.request, lambda: self._walk.resume(scope))

    def _carry_out(self, state: RequestState, work: Work) -> None:
        self._queue(work)
        try:
            for event in self._outputs.events(work.pieces):
                state.request.emit(event)
            outputs = self._outputs.of(state.values) if work.over else None
        except Exception as cause:  # noqa: BLE001 - what a stage made is no sound: its request ends, and no other
            self.end(state, "error", broken(cause))
            return
        if outputs is not None:
            self._close(state, state.held or Event(finish_reason="stop"), outputs)
        elif state.held is not None and _says(state.held):  # text does not wait for other stages
            said, state.held = state.held, only_end(state.held)
            state.request.emit(replace(said, finish_reason=None, stop_string=None))

    def _close(self, state: RequestState, end: Event, outputs: Mapping[str, object]) -> None:
        state.done = True
        self._states.discard(state)
        state.request.emit(request_end(end, state, outputs))
        self._listener.ended(state, end.finish_reason or "error")
        state.request.emit(None)

    def _flush(self, sequence: TokenSequence) -> AnswerPart:
        """What was held back, of a loop whose text is an output."""
        part = sequence.text.finish()
        return part if self._loops[sequence.loop].rules.streams else NOTHING

    def _drop(self, sequence: TokenSequence) -> None:
        self.live.pop(sequence.id, None)
        self._scheduler.finish(sequence.id)
        self._loops[sequence.loop].close(sequence)
        self._listener.left(sequence)


def broken(cause: Exception) -> GenaiError:
    """The error that a request ends with: one made for people, or one that says what was not foreseen."""
    if isinstance(cause, GenaiError):
        return cause
    error = RequestBrokenError(f"the request cannot go on: {type(cause).__name__}: {cause}")
    error.__cause__ = cause
    return error


def _says(event: Event) -> bool:
    """Whether an event carries anything of an answer."""
    return bool(event.text or event.reasoning or event.tool_calls)


def _ticket(sequence: TokenSequence) -> Ticket:
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
        extra_pages=sequence.extra_pages,
        chunks=sequence.chunks if sequence.scores is None or sequence.chunks != ANY_CHUNKS else SCORED_CHUNKS,
    )

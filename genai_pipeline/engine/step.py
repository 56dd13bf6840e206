"""One engine step as transactions: each planned run is reserved, run, chosen from and committed, or undone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.beams import Search
from genai_pipeline.engine.choosing import Picks, accept
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.events import end_token_event, token_event
from genai_pipeline.engine.interruption import CurrentRun, RunGivenUpError
from genai_pipeline.engine.listeners import Listener
from genai_pipeline.engine.pace import Pace
from genai_pipeline.engine.requests import Requests
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.errors import GenaiError
from genai_pipeline.sampling.state import Chosen
from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.speculative.stats import judged
from genai_pipeline.types import FinishReason


class _Outcome(NamedTuple):
    """What a run made of one sequence: how many tokens joined it, and why it ends, if it does."""

    num_tokens: int
    reason: FinishReason | None
    error: GenaiError | None = None


class Stepper:
    """Carries out step plans over the live sequences of ``requests``, which hear of each that ended."""

    def __init__(
        self,
        loops: Mapping[str, DecodeLoop],
        scheduler: Scheduler,
        requests: Requests,
        paces: Mapping[str, Pace],
        listener: Listener,
    ) -> None:
        self._loops = loops
        self._scheduler = scheduler
        self._live = requests.live
        self._paces = paces
        self._finish = requests.finish_sequence
        self._end_search = requests.end_search
        self._listener = listener
        self.current = CurrentRun()

    def execute(self, plan: StepPlan) -> None:
        """Preempt, admit, then run every run of the plan as its own transaction."""
        for preemption in plan.preempted:
            sequence = self._live[preemption.sequence]
            kept = self._loops[sequence.loop].preempt(sequence, swap=preemption.by == "swap")
            self._listener.preempted(sequence, kept=kept)
        for id in plan.admitted:
            if id in self._live:  # a search that came to its end with the one before may have ended the request
                self._admit(self._live[id])
        for run in plan.runs:
            loop = self._loops[run.loop]
            for kind, batch in loop.batches(run, [self._live.get(span.sequence) for span in run.spans]):
                if all(sequence.id in self._live for sequence in batch.sequences):
                    self._transaction(loop, kind, batch)
                else:  # an earlier batch of this step ended some of its rows
                    self._alone(loop, kind, batch)

    def _admit(self, sequence: Sequence) -> None:
        state = sequence.request
        try:
            restored = self._loops[sequence.loop].open(sequence)
        except GenaiError as error:  # its state cannot be what another component gave
            sequence.finish_reason, sequence.error = "error", error
            self._finish(sequence)
            return
        self._listener.admitted(sequence)
        if restored:
            self._scheduler.advance(sequence.id, restored, len(sequence.tokens))
        if state.admitted is None:
            state.admitted = time.perf_counter()
        if not sequence.entered and sequence.source is None:  # each loop's prompt counts once, for all its choices
            state.num_cached += sequence.num_cached
        sequence.entered = True
        if sequence.search is not None:
            self._go_on(sequence.search)

    def _transaction(self, loop: DecodeLoop, kind: str, batch: Batch) -> None:
        """Reserve, run, choose, commit; a run that fails leaves no trace."""
        loop.reserve(batch)
        started = time.perf_counter()
        try:
            requests = [sequence.request for sequence in batch.sequences]
            logits = self.current.run(requests, loop.bindings(kind), lambda: loop.run(kind, batch))
        except RunGivenUpError:
            return  # all its requests are about to end
        except GenaiError as error:
            self._listener.failed(kind, batch)
            self._isolate(loop, kind, batch, error)
            return
        stopped = time.perf_counter()
        picks = loop.choose(batch, logits)
        loop.commit(batch, picks)
        self._took(loop, kind, batch, stopped - started)
        if loop.drafting is not None and kind != "prefill":
            loop.drafting.ran(batch, picks, stopped - started)
        outcomes = [
            self._extend(loop, sequence, num_drafts, picked)
            for sequence, num_drafts, picked in zip(batch.sequences, batch.drafts, picks, strict=True)
        ]
        self._listener.ran(kind, batch, started, stopped, sum(outcome.num_tokens for outcome in outcomes))
        for sequence, outcome in zip(batch.sequences, outcomes, strict=True):
            self._settle(sequence, outcome)

    def _extend(self, loop: DecodeLoop, sequence: Sequence, num_drafts: int, picked: Picks) -> _Outcome:
        """Let the chosen tokens join their sequence, up to one that ends it, and those that follow of necessity."""
        before = len(sequence.tokens)
        drafts, sequence.drafts = sequence.drafts[:num_drafts], []
        reason, error = self._join(loop, sequence, picked.tokens), None
        if drafts:
            sequence.speculation = sequence.speculation.verified(*judged(drafts, sequence.tokens[before:]))
        if reason is None and picked.error is not None:
            reason, error = "error", picked.error
        elif reason is None and picked.tokens:
            reason, error = self._force(loop, sequence)
        elif sequence.num_computed == len(sequence.tokens) and not sequence.max_tokens:
            reason = "length"  # a prompt that is only scored
        if sequence.search is not None and picked.offer is not None:
            sequence.search.offer(sequence, picked.offer)
            return _Outcome(1, reason, error)  # as many as it chooses by offering
        return _Outcome(len(sequence.tokens) - before, reason, error)

    def _join(self, loop: DecodeLoop, sequence: Sequence, choices: list[Chosen]) -> FinishReason | None:
        """Append tokens up to one that ends the sequence; gives why it does."""
        for left, choice in zip(reversed(range(len(choices))), choices, strict=True):
            reason = self._append(loop, sequence, choice, last=not left)
            if reason is not None:
                return reason
        return None

    def _force(self, loop: DecodeLoop, sequence: Sequence) -> tuple[FinishReason | None, GenaiError | None]:
        """Append the tokens that must come next; they are computed with the next run of the sequence."""
        try:
            for token in loop.forced(sequence):
                choice = Chosen(token)
                accept(sequence, choice)
                reason = self._append(loop, sequence, choice, last=True)
                if reason is not None:
                    return reason, None
        except GenaiError as error:
            return "error", error
        return None, None

    def _settle(self, sequence: Sequence, outcome: _Outcome) -> None:
        """End a sequence, or tell the scheduler how far it has come."""
        if sequence.id not in self._live:
            return  # another choice of its request has failed
        if outcome.reason is None:
            self._scheduler.advance(sequence.id, sequence.num_computed, len(sequence.tokens))
            if sequence.search is not None:
                self._go_on(sequence.search)
            return
        sequence.finish_reason, sequence.error = outcome.reason, outcome.error
        self._finish(sequence)

    def _go_on(self, search: Search) -> None:
        """Let the beams of a search take their next step once all are there, or give its answers."""
        if not search.ready:
            return
        loop, state = self._loops[search.loop], search.request
        if state.first_token is None:
            state.first_token = time.perf_counter()
        try:
            search.advance(loop)
        except GenaiError as error:
            self._settle(search.beams[0], _Outcome(0, "error", error))
            return
        if not search.over:
            for beam in search.beams:
                self._scheduler.advance(beam.id, beam.num_computed, len(beam.tokens))
            return
        self._end_search(search)
        for answer, hypothesis in search.found():
            answer.finish_reason = self._join(loop, answer, list(map(Chosen, hypothesis.tokens)))
            self._finish(answer)

    def _took(self, loop: DecodeLoop, kind: str, batch: Batch, seconds: float) -> None:
        """Keep count of what the run took, for the requests and for the pace of later prefills."""
        for state in {sequence.request for sequence in batch.sequences}:
            state.graph_seconds += seconds
        pace = self._paces[loop.id]
        if kind != "prefill":
            pace.decode_took(seconds)
        else:
            pace.prefill_took(batch.size * batch.width, seconds)
            self._scheduler.costs = replace(self._scheduler.costs, prefill=int(1e9 * (pace.prefill_seconds or 0)))
        self._scheduler.prefill_beside[loop.id] = pace.prefill_beside()

    def _isolate(self, loop: DecodeLoop, kind: str, batch: Batch, error: GenaiError) -> None:
        """Run the rows of a failed batch alone, so that only the row at fault ends."""
        if batch.size == 1:
            self._settle(batch.sequences[0], _Outcome(0, "error", error))
            return
        self._alone(loop, kind, batch)

    def _alone(self, loop: DecodeLoop, kind: str, batch: Batch) -> None:
        """Run the rows of a batch one by one; a request that fails takes all its choices with it."""
        for index, sequence in enumerate(batch.sequences):
            if sequence.id in self._live:
                self._transaction(loop, kind, batch.only(index))

    def _append(self, loop: DecodeLoop, sequence: Sequence, choice: Chosen, *, last: bool) -> FinishReason | None:
        """Let a token join a sequence and tell its consumer; gives why the sequence ends with it, if it does."""
        state, token = sequence.request, choice.token
        sequence.tokens.append(token)
        state.num_completion += 1
        state.last_token = time.perf_counter()
        if state.first_token is None:
            state.first_token = state.last_token
        if not loop.rules.ends(sequence, token):
            part = sequence.text.push(token)
            if sequence.budget is not None:
                sequence.budget.accept(inside=sequence.text.in_reasoning)
            if loop.rules.streams:
                state.request.emit(token_event(sequence, choice, part))
        elif choice.logprobs is not None and loop.rules.streams:
            state.request.emit(end_token_event(sequence.choice, choice))
        return loop.ending(sequence, token, last=last)

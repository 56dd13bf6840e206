"""One engine step as transactions: each planned run is reserved, run, chosen from and committed, or undone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.errors import CapacityError, GraphRunError
from genai_pipeline.scheduler.plan import Run, StepPlan
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.types import Event

Finish = Callable[[Sequence], None]


class Stepper:
    """Carries out step plans over live sequences; ``finish`` is called for each sequence that ended."""

    def __init__(
        self, loops: Mapping[str, DecodeLoop], scheduler: Scheduler, live: Mapping[int, Sequence], finish: Finish
    ) -> None:
        self._loops = loops
        self._scheduler = scheduler
        self._live = live
        self._finish = finish

    def execute(self, plan: StepPlan) -> None:
        """Admit, then run every run of the plan as its own transaction."""
        for id in plan.admitted:
            self._admit(self._live[id])
        for run in plan.runs:
            loop = self._loops[run.loop]
            for batch in self._batches(run):
                self._transaction(loop, run.kind, batch)

    def _admit(self, sequence: Sequence) -> None:
        self._loops[sequence.loop].open(sequence)
        state = sequence.request
        if state.admitted is None:
            state.admitted = time.perf_counter()

    def _batches(self, run: Run) -> list[Batch]:
        return [Batch.of(run, tuple(self._live[span.sequence] for span in run.spans))]

    def _transaction(self, loop: DecodeLoop, kind: str, batch: Batch) -> None:
        if not loop.reserve(batch):
            self._fail(batch, CapacityError("the KV cache has no room for this sequence"))
            return
        started = time.perf_counter()
        try:
            logits = loop.run(kind, batch)
        except GraphRunError as error:
            self._isolate(loop, kind, batch, error)
            return
        seconds = time.perf_counter() - started
        tokens = iter(loop.choose(batch, logits))
        loop.commit(batch)
        for sequence, samples in zip(batch.sequences, batch.samples, strict=True):
            sequence.request.graph_seconds += seconds
            if samples:
                self._append(loop, sequence, next(tokens))
            if sequence.finish_reason is None:
                self._scheduler.advance(sequence.id, sequence.num_computed, len(sequence.tokens))

    def _isolate(self, loop: DecodeLoop, kind: str, batch: Batch, error: GraphRunError) -> None:
        """Run the rows of a failed batch alone, so that only the row at fault ends."""
        if batch.size == 1:
            self._fail(batch, error)
            return
        for index in range(batch.size):
            self._transaction(loop, kind, batch.only(index))

    def _append(self, loop: DecodeLoop, sequence: Sequence, token: int) -> None:
        state = sequence.request
        sequence.tokens.append(token)
        state.num_completion += 1
        state.last_token = time.perf_counter()
        if state.first_token is None:
            state.first_token = state.last_token
        if not loop.is_end(sequence, token):
            text = sequence.text.push(token)
            if loop.rules.streams:
                state.request.emit(Event(index=sequence.choice, token=token, text=text))
        sequence.finish_reason = loop.ending(sequence, token)
        if sequence.finish_reason is not None:
            self._finish(sequence)

    def _fail(self, batch: Batch, error: BaseException) -> None:
        for sequence in batch.sequences:
            sequence.finish_reason, sequence.error = "error", error
            self._finish(sequence)

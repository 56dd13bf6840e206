"""A runner without a model: does to the counters what an engine step does, and checks what must always hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from genai_pipeline.scheduler.budget import Budget, pages_for
from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.scheduler.ticket import Priority, Ticket

LOOP = "generate"


@dataclass
class FakeSequence:
    """Counters as the engine keeps them."""

    ticket: Ticket
    num_tokens: int
    num_computed: int = 0
    saved: int = 0  # computed tokens kept outside while it is swapped
    running: bool = False


@dataclass
class FakeRunner:
    """Drives a scheduler over one loop until everybody has reached its most tokens."""

    scheduler: Scheduler
    budget: Budget
    live: dict[int, FakeSequence] = field(default_factory=dict)
    finished: list[int] = field(default_factory=list)

    def submit(self, id: int, prompt: int, new: int, priority: Priority = Priority.NORMAL, **rest: object) -> None:
        ticket = Ticket(id, LOOP, prompt, prompt + new, priority, **rest)  # type: ignore[arg-type]
        self.live[id] = FakeSequence(ticket, prompt)
        self.scheduler.submit(ticket)

    def cancel(self, id: int) -> None:
        del self.live[id]
        self.scheduler.finish(id)

    def step(self) -> StepPlan:
        plan = self.scheduler.plan()
        for id, by in plan.preempted:
            sequence = self.live[id]
            assert sequence.running
            sequence.running, sequence.saved = False, sequence.num_computed if by == "swap" else 0
            sequence.num_computed = 0
        for id in plan.admitted:
            sequence = self.live[id]
            assert not sequence.running
            sequence.running = True
            if sequence.saved:
                sequence.num_computed, sequence.saved = sequence.saved, 0
                self.scheduler.advance(id, sequence.num_computed, sequence.num_tokens)
        for run in plan.runs:
            for span in run.spans:
                assert span.sequence not in plan.admitted
                self._compute(span.sequence, span.start, span.stop, span.samples)
        self.check()
        return plan

    def _compute(self, id: int, start: int, stop: int, samples: bool) -> None:
        sequence = self.live[id]
        assert sequence.running
        assert sequence.num_computed == start < stop <= sequence.num_tokens
        sequence.num_computed = stop
        if samples:
            assert stop == sequence.num_tokens
            if sequence.num_tokens == sequence.ticket.max_tokens:
                self.finished.append(id)
                self.cancel(id)
                return
            sequence.num_tokens += 1
        self.scheduler.advance(id, sequence.num_computed, sequence.num_tokens)

    def check(self) -> None:
        running = [sequence for sequence in self.live.values() if sequence.running]
        assert len(running) <= self.budget.max_rows
        assert sum(pages_for(sequence.num_computed) for sequence in running) <= self.budget.num_pages
        assert 0 <= self.scheduler.free_pages(LOOP) <= self.budget.num_pages
        if not running:
            assert self.scheduler.free_pages(LOOP) == self.budget.num_pages

    def run(self, most: int = 100_000) -> Iterator[StepPlan]:
        """Steps until nobody is left; fails when a step with live work does nothing at all, twice in a row."""
        idle = 0
        for _ in range(most):
            if not self.live:
                return
            plan = self.step()
            idle = 0 if plan.runs else idle + 1
            assert idle < 3, "live work, and nothing runs"
            yield plan
        raise AssertionError("not finished")


def runner(budget: Budget, **options: object) -> FakeRunner:
    return FakeRunner(Scheduler({LOOP: budget}, **options), budget)  # type: ignore[arg-type]

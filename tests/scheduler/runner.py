"""A runner without a model: does to the counters what an engine step does, and checks what must always hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from genai_pipeline.scheduler.budget import Budget, pages_for
from genai_pipeline.scheduler.plan import Span, StepPlan
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
    drafts: Callable[[int], tuple[int, int]] | None = None  # how many to draft for a sequence, and how many are right
    _right: dict[int, int] = field(default_factory=dict)

    def submit(self, id: int, prompt: int, new: int, priority: Priority = Priority.NORMAL, **rest: object) -> None:
        ticket = Ticket(id, LOOP, prompt, prompt + new, priority, **rest)  # type: ignore[arg-type]
        self.live[id] = FakeSequence(ticket, prompt)
        self.scheduler.submit(ticket)

    def cancel(self, id: int) -> None:
        del self.live[id]
        self.scheduler.finish(id)

    def step(self) -> StepPlan:
        self._draft()
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
        self._check_pages(plan)
        for run in plan.runs:
            for span in run.spans:
                assert span.sequence not in plan.admitted
                self._compute(span)
        self.check()
        return plan

    def _draft(self) -> None:
        """Ask for drafts as an engine does: for sequences that decode, within their room."""
        for id in self.live if self.drafts is not None else ():
            if self.scheduler.decodes(id):
                count, right = self.drafts(id)
                count = min(count, self.scheduler.room_for_drafts(id))
                self._right[id] = min(right, count)
                self.scheduler.draft(id, count)

    def _compute(self, span: Span) -> None:
        sequence = self.live[span.sequence]
        assert sequence.running
        known = span.stop - span.num_drafts
        assert sequence.num_computed == span.start < known <= sequence.num_tokens
        assert not span.num_drafts or (span.samples and known == span.start + 1)
        right = min(self._right.get(span.sequence, 0), span.num_drafts)
        sequence.num_computed = known + right
        if span.samples:
            assert known == sequence.num_tokens
            assert known + span.num_drafts < sequence.ticket.max_tokens or not span.num_drafts
            if sequence.num_tokens == sequence.ticket.max_tokens:
                self.finished.append(span.sequence)
                self.cancel(span.sequence)
                return
            sequence.num_tokens += right + 1
        self.scheduler.advance(span.sequence, sequence.num_computed, sequence.num_tokens)

    def _check_pages(self, plan: StepPlan) -> None:
        """While the runs of a plan are under way, every token and draft has its page."""
        needed = {id: pages_for(sequence.num_computed) for id, sequence in self.live.items() if sequence.running}
        needed |= {span.sequence: pages_for(span.stop) for run in plan.runs for span in run.spans}
        held = {id: tracked.num_pages for id, tracked in self.scheduler._running.items()}
        assert all(held[id] >= pages for id, pages in needed.items())
        assert sum(held.values()) + self.scheduler.free_pages(LOOP) == self.budget.num_pages

    def check(self) -> None:
        running = [sequence for sequence in self.live.values() if sequence.running]
        assert len(running) <= self.budget.max_rows
        assert sum(pages_for(sequence.num_computed) for sequence in running) <= self.budget.num_pages
        assert 0 <= self.scheduler.free_pages(LOOP) <= self.budget.num_pages
        held = sum(tracked.num_pages for tracked in self.scheduler._running.values())
        assert held + self.scheduler.free_pages(LOOP) == self.budget.num_pages
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

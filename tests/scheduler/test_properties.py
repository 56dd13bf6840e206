"""What must hold whatever happens: nothing over capacity, nobody stuck, nobody starving, nothing held at the end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from runner import LOOP, FakeRunner, runner

from genai_pipeline.scheduler.budget import Budget, Costs, pages_for
from genai_pipeline.scheduler.plan import Preemption, StepPlan
from genai_pipeline.scheduler.policy import POLICIES
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.scheduler.ticket import Priority

BUDGET = Budget(max_rows=3, num_pages=6, prefill_tokens=24, prefill_batch=10)
MOST = BUDGET.num_pages * 16
requests = st.tuples(st.integers(1, 60), st.integers(1, 60), st.sampled_from(Priority)).filter(
    lambda request: request[0] + request[1] <= MOST
)


def random_drafts(seed: int, *, right: bool = True) -> Callable[[int], tuple[int, int]]:
    """Drafts of random lengths, up to more than a page, of which a random number is right, or none."""
    numbers = Random(seed)

    def drafts(id: int) -> tuple[int, int]:
        count = numbers.randint(0, 20)
        return count, numbers.randint(0, count) if right else 0

    return drafts


class SchedulerMachine(RuleBasedStateMachine):
    """Random submissions, cancellations and steps, with drafts, over a tiny pool."""

    def __init__(self) -> None:
        super().__init__()
        self.fake = runner(BUDGET)
        self.next = 0

    @rule(request=requests)
    def submit(self, request: tuple[int, int, Priority]) -> None:
        after = self.next - 1 if self.next % 3 == 2 and self.next - 1 in self.fake.live else None
        self.fake.submit(self.next, *request, after=after)
        self.next += 1

    @precondition(lambda self: self.fake.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.fake.cancel(data.draw(st.sampled_from(sorted(self.fake.live))))

    @rule(steps=st.integers(1, 12), seed=st.none() | st.integers(0, 1000))
    def step(self, steps: int, seed: int | None) -> None:
        self.fake.drafts = None if seed is None else random_drafts(seed)
        for _ in range(steps):
            self.fake.step()

    @invariant()
    def nothing_over_capacity(self) -> None:
        self.fake.check()
        assert self.fake.scheduler.num_running + self.fake.scheduler.num_waiting == len(self.fake.live)

    def teardown(self) -> None:
        for _ in self.fake.run():
            pass
        assert self.fake.scheduler.free_pages(LOOP) == BUDGET.num_pages
        assert self.fake.scheduler.num_running == self.fake.scheduler.num_waiting == 0


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(requests, min_size=1, max_size=10),
    st.sampled_from(sorted(POLICIES)),
    st.sampled_from([Costs(prefill=1, copy=9), Costs(prefill=9, copy=1)]),
    st.none() | st.integers(0, 1000),
)
def test_every_admitted_request_finishes(
    batch: list[tuple[int, int, Priority]], policy: str, costs: Costs, seed: int | None
) -> None:
    fake = runner(BUDGET, policy=POLICIES[policy](), costs=costs)
    fake.drafts = None if seed is None else random_drafts(seed)
    for id, request in enumerate(batch):
        fake.submit(id, *request)
    for _ in fake.run():
        pass
    assert sorted(fake.finished) == list(range(len(batch)))


def without_drafts(plan: StepPlan) -> StepPlan:
    runs = [
        run._replace(spans=tuple(span._replace(stop=span.stop - span.num_drafts, num_drafts=0) for span in run.spans))
        for run in plan.runs
    ]
    return plan._replace(runs=tuple(runs))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), requests), min_size=2, max_size=10),
    st.sampled_from(sorted(POLICIES)),
    st.integers(0, 1000),
)
def test_wrong_drafts_take_nobodys_place(
    batch: list[tuple[int, tuple[int, int, Priority]]], policy: str, seed: int
) -> None:
    """Whoever drafts in vain: everybody enters, runs, grows and leaves in the same steps as without drafts."""
    plain, drafting = (runner(BUDGET, policy=POLICIES[policy]()) for _ in range(2))
    drafting.drafts = random_drafts(seed, right=False)
    for id, (steps, request) in enumerate(batch):
        for fake in (plain, drafting):
            fake.submit(id, *request)
        for _ in range(steps):
            assert without_drafts(drafting.step()) == plain.step()
    for plan in plain.run():
        assert without_drafts(drafting.step()) == plan
    assert drafting.finished == plain.finished


class Unguarded(Scheduler):
    """A scheduler that lets a row wait for pages instead of preempting: what the real one must not do."""

    def _grow(self):  # type: ignore[no-untyped-def]
        self.stuck = {t.ticket.sequence for t in self._running.values() if not self._take(t, t.num_tokens)}
        yield from ()

    def _runs(self, running):  # type: ignore[no-untyped-def]
        return super()._runs([t for t in running if t.ticket.sequence not in getattr(self, "stuck", ())])


def test_the_checks_catch_a_scheduler_that_deadlocks() -> None:
    budget = Budget(max_rows=2, num_pages=6)
    fake = FakeRunner(Unguarded({LOOP: budget}), budget)
    for id in range(2):
        fake.submit(id, 16, 48)
    with pytest.raises(AssertionError, match="nothing runs"):
        for _ in fake.run():
            pass


def test_preempted_work_is_named_once_and_holds_nothing() -> None:
    fake = runner(Budget(max_rows=2, num_pages=5))
    for id in range(2):
        fake.submit(id, 16, 40)
    seen: list[Preemption] = []
    for plan in fake.run():
        seen += plan.preempted
        held = held_pages(fake)
        assert held + fake.scheduler.free_pages(LOOP) == 5
    assert seen


def held_pages(fake: FakeRunner) -> int:
    """Pages that running sequences hold: those of their tokens, and of the one they were admitted with."""
    return sum(
        tracked.num_pages
        for tracked in fake.scheduler._running.values()
        if tracked.num_pages >= pages_for(tracked.num_computed)
    )

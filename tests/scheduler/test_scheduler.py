from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.scheduler.plan import StepPlan
from genai_pipeline.scheduler.scheduler import Budget, Scheduler, chunk_size


def commit(scheduler: Scheduler, plan: StepPlan, lengths: dict[int, int]) -> None:
    """Do what a step does to the counters: every span is computed, and a sampling span brings one token."""
    for run in plan.runs:
        for span in run.spans:
            lengths[span.sequence] += span.samples
            scheduler.advance(span.sequence, span.stop, lengths[span.sequence])


def test_prefill_in_chunks_then_decode() -> None:
    scheduler = Scheduler(Budget(prefill_tokens=16))
    scheduler.submit(7, "generate", 40)
    lengths = {7: 40}
    spans = []
    for _ in range(5):
        plan = scheduler.plan()
        spans += [(run.kind, span.start, span.stop, span.samples) for run in plan.runs for span in run.spans]
        commit(scheduler, plan, lengths)
    assert spans == [
        ("prefill", 0, 16, False),
        ("prefill", 16, 32, False),
        ("prefill", 32, 40, True),
        ("decode", 40, 41, True),
        ("decode", 41, 42, True),
    ]


def test_one_row_runs_requests_in_order_of_arrival() -> None:
    scheduler = Scheduler(Budget(max_rows=1))
    for id in (3, 1, 2):
        scheduler.submit(id, "generate", 4)
    order = []
    while scheduler.num_waiting or scheduler.num_running:
        plan = scheduler.plan()
        order += plan.admitted
        for run in plan.runs:
            scheduler.finish(run.spans[0].sequence)
    assert order == [3, 1, 2]


def test_a_prompt_of_one_token_is_a_prefill() -> None:
    scheduler = Scheduler(Budget())
    scheduler.submit(1, "generate", 1)
    (run,) = scheduler.plan().runs
    assert (run.kind, run.spans[0].start, run.spans[0].stop, run.spans[0].samples) == ("prefill", 0, 1, True)


def test_finishing_a_waiting_sequence_takes_it_out_of_the_queue() -> None:
    scheduler = Scheduler(Budget(max_rows=1))
    scheduler.submit(1, "generate", 4)
    scheduler.submit(2, "generate", 4)
    scheduler.plan()
    scheduler.finish(2)
    scheduler.finish(1)
    assert scheduler.plan() == StepPlan(())


@given(st.integers(2, 500), st.integers(3, 64))
def test_chunks_cover_the_prompt_within_the_budget_and_none_has_one_token(prompt: int, budget: int) -> None:
    done = 0
    while done < prompt:
        size = chunk_size(prompt - done, budget)
        assert 2 <= size <= budget
        done += size
    assert done == prompt


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(1, 4), st.integers(3, 32))
def test_every_sequence_is_computed_without_gap_or_overlap(prompts: list[int], rows: int, budget: int) -> None:
    scheduler = Scheduler(Budget(max_rows=rows, prefill_tokens=budget))
    lengths = dict(enumerate(prompts))
    computed = dict.fromkeys(lengths, 0)
    for id, length in lengths.items():
        scheduler.submit(id, "generate", length)
    while scheduler.num_waiting or scheduler.num_running:
        plan = scheduler.plan()
        assert plan.runs, "a scheduler with work must plan some"
        assert scheduler.num_running <= rows
        assert sum(span.num_tokens for run in plan.runs if run.kind == "prefill" for span in run.spans) <= budget
        for run in plan.runs:
            for span in run.spans:
                assert span.start == computed[span.sequence]
                computed[span.sequence] = span.stop
        commit(scheduler, plan, lengths)
        for id in [id for id, length in lengths.items() if length == prompts[id] + 3]:
            scheduler.finish(id)
            del lengths[id]

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runner import LOOP, runner

from genai_pipeline.scheduler.budget import Budget, Costs
from genai_pipeline.scheduler.chunks import chunk_size
from genai_pipeline.scheduler.plan import SideRun, StepPlan
from genai_pipeline.scheduler.policy import AGING_STEPS, FairShare, FirstCome
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.scheduler.side_queue import JobTicket
from genai_pipeline.scheduler.ticket import WHOLE, Chunks, Priority, Ticket


def spans(plan: StepPlan) -> list[tuple[str, int, int, bool]]:
    return [(run.kind, span.start, span.stop, span.samples) for run in plan.runs for span in run.spans]


def test_a_prompt_is_admitted_then_prefilled_in_chunks_then_decoded() -> None:
    fake = runner(Budget(prefill_tokens=16))
    fake.submit(7, 40, 3)
    plans = list(fake.run())
    assert plans[0].admitted == (7,)
    assert [span for plan in plans for span in spans(plan)] == [
        ("prefill", 0, 16, False),
        ("prefill", 16, 32, False),
        ("prefill", 32, 40, True),
        ("decode", 40, 41, True),
        ("decode", 41, 42, True),
        ("decode", 42, 43, True),
    ]


def test_one_row_runs_requests_in_order_of_arrival() -> None:
    fake = runner(Budget(max_rows=1))
    for id in (3, 1, 2):
        fake.submit(id, 4, 2)
    list(fake.run())
    assert fake.finished == [3, 1, 2]


def test_a_prompt_of_one_token_is_a_prefill() -> None:
    fake = runner(Budget())
    fake.submit(1, 1, 1)
    fake.step()
    assert spans(fake.step()) == [("prefill", 0, 1, True)]


def test_decode_rows_share_a_run_and_prefill_goes_on_beside_them() -> None:
    fake = runner(Budget(max_rows=4, prefill_tokens=32))
    for id in range(3):
        fake.submit(id, 8, 50)
    for _ in range(3):
        fake.step()
    fake.submit(9, 64, 5)
    fake.step()
    plan = fake.step()
    assert [(run.kind, len(run.spans)) for run in plan.runs] == [("decode", 3), ("prefill", 1)]


def test_fewer_prompt_tokens_run_beside_decode_rows_when_asked() -> None:
    fake = runner(Budget(max_rows=2, prefill_tokens=64))
    fake.submit(1, 4, 50)
    fake.step()
    fake.step()
    fake.scheduler.prefill_beside[LOOP] = 16
    fake.submit(2, 40, 5)
    fake.step()
    (prefill,) = [run for run in fake.step().runs if run.kind == "prefill"]
    assert prefill.spans[0].num_tokens == 16


def test_short_first_prompts_share_a_padded_run_and_long_ones_run_alone() -> None:
    fake = runner(Budget(max_rows=8, prefill_tokens=100, prefill_batch=32))
    for id, length in enumerate((10, 20, 30, 25, 64)):
        fake.submit(id, length, 2)
    fake.step()
    plan = fake.step()
    assert [[span.sequence for span in run.spans] for run in plan.runs] == [[0, 1, 2, 3], [4]]
    assert plan.runs[1].spans[0].num_tokens == 15  # 85 of the 100 are taken


def test_a_short_prompt_is_never_cut_and_few_wait_for_many_rows() -> None:
    fake = runner(Budget(max_rows=8, prefill_tokens=64, prefill_batch=32))
    for id in range(4):
        fake.submit(id, 10, 90)
    fake.step()
    fake.step()
    fake.scheduler.prefill_beside[LOOP] = 16
    for id in range(4, 7):
        fake.submit(id, 30, 5)
    fake.step()
    assert [len(run.spans) for run in fake.step().runs] == [4, 1]  # beside four rows, one of three


def test_as_many_short_prompts_as_rows_start_at_once() -> None:
    fake = runner(Budget(max_rows=8, prefill_tokens=64, prefill_batch=32))
    fake.submit(0, 10, 90)
    fake.step()
    fake.step()
    fake.scheduler.prefill_beside[LOOP] = 16
    for id in range(1, 8):
        fake.submit(id, 30, 5)
    fake.step()
    assert [len(run.spans) for run in fake.step().runs] == [1, 7]


def test_a_long_prompt_is_not_starved_by_short_ones_that_come_later() -> None:
    fake = runner(Budget(max_rows=8, prefill_tokens=64, prefill_batch=32))
    for id in range(3):
        fake.submit(id, 10, 900)
    fake.step()
    fake.step()
    fake.scheduler.prefill_beside[LOOP] = 16
    fake.submit(100, 160, 5)
    for step in range(40):
        fake.submit(1000 + step, 16, 1)
        fake.step()
    assert fake.live[100].num_computed >= 160 if 100 in fake.live else 100 in fake.finished


def test_a_prompt_longer_than_a_chunk_is_cut_however_short() -> None:
    fake = runner(Budget(max_rows=4, prefill_tokens=16, prefill_batch=64))
    fake.submit(1, 40, 2)
    fake.submit(2, 12, 2)
    fake.submit(3, 10, 2)
    fake.step()
    widths = [max(span.num_tokens for span in run.spans) for plan in fake.run() for run in plan.runs]
    assert max(widths) == 16


def test_the_most_important_prompt_comes_first_also_when_nobody_waits() -> None:
    fake = runner(Budget(max_rows=4, prefill_tokens=16))
    fake.submit(1, 64, 2, Priority.LOW)
    fake.submit(2, 64, 2, Priority.HIGH)
    fake.step()
    assert not fake.scheduler.num_waiting
    assert fake.step().runs[0].spans[0].sequence == 2
    fake.submit(3, 64, 2, Priority.HIGH)
    fake.step()
    list(fake.run())
    assert fake.finished == [2, 3, 1]


def test_a_full_pool_preempts_the_newest_of_the_lowest_priority() -> None:
    fake = runner(Budget(max_rows=4, num_pages=8))
    fake.submit(1, 16, 60, Priority.NORMAL)
    fake.submit(2, 16, 60, Priority.LOW)
    fake.submit(3, 16, 60, Priority.NORMAL)
    victims = [preemption.sequence for plan in fake.run() for preemption in plan.preempted]
    assert victims[0] == 2
    assert 1 not in victims
    assert sorted(fake.finished) == [1, 2, 3]


def test_a_higher_priority_takes_the_row_of_a_lower_one() -> None:
    fake = runner(Budget(max_rows=1))
    fake.submit(1, 4, 30, Priority.LOW)
    fake.step()
    fake.step()
    fake.submit(2, 4, 3, Priority.HIGH)
    list(fake.run())
    assert fake.finished == [2, 1]


def test_first_come_never_lets_a_later_one_pass() -> None:
    fake = runner(Budget(max_rows=1), policy=FirstCome())
    fake.submit(1, 4, 5, Priority.LOW)
    fake.submit(2, 4, 5, Priority.HIGH)
    list(fake.run())
    assert fake.finished == [1, 2]


def test_fair_share_serves_the_key_that_had_least() -> None:
    fake = runner(Budget(max_rows=1), policy=FairShare())
    for id in range(4):
        fake.submit(id, 8, 8, key="busy")
    fake.submit(9, 8, 8, key="quiet")
    list(fake.run())
    assert fake.finished.index(9) <= 1


def test_restored_state_is_no_share_of_the_machine() -> None:
    fake = runner(Budget(max_rows=2), policy=FairShare())
    fake.submit(1, 100, 50, key="cached")
    fake.live[1].saved = 90
    fake.step()
    assert fake.scheduler._shares.served == {"cached": 0}
    fake.step()
    assert fake.scheduler._shares.served == {"cached": 10}


def test_a_newcomer_is_level_with_the_least_served_and_idle_keys_are_forgotten() -> None:
    fake = runner(Budget(max_rows=2), policy=FairShare())
    fake.submit(1, 40, 50, key="a")
    fake.step()
    fake.step()
    fake.submit(2, 4, 2, key="b")
    assert fake.scheduler._shares.served == {"a": 40, "b": 40}
    fake.cancel(2)
    assert set(fake.scheduler._shares.served) == {"a"}
    list(fake.run())
    assert fake.scheduler._shares.served == {}


def test_waiting_raises_a_low_priority_above_newcomers() -> None:
    fake = runner(Budget(max_rows=1))
    fake.submit(0, 4, 5, Priority.LOW)
    newest = 1
    for _ in range(3 * AGING_STEPS):
        while sum(s.ticket.priority == Priority.HIGH for s in fake.live.values()) < 3:
            fake.submit(newest, 4, 5, Priority.HIGH)
            newest += 1
        fake.step()
    assert 0 in fake.finished


def test_swap_where_copying_is_cheaper_than_computing() -> None:
    assert Costs(prefill=1000, copy=100).swaps
    assert not Costs(prefill=100, copy=100).swaps


def test_right_drafts_take_no_page_that_was_not_planned() -> None:
    fake = runner(Budget(max_rows=2, num_pages=3))
    fake.drafts = lambda id: (16, 16) if id == 1 else (0, 0)
    fake.submit(1, 15, 30)
    fake.submit(2, 4, 12)
    widths = [span.num_drafts for plan in fake.run() for run in plan.runs for span in run.spans]
    assert max(widths) == 16
    assert sorted(fake.finished) == [1, 2]


def test_a_fork_waits_until_the_prompt_of_its_source_is_computed() -> None:
    fake = runner(Budget(max_rows=4, prefill_tokens=8))
    fake.submit(1, 20, 10)
    fake.submit(2, 20, 10, after=1)
    admitted = {id: step for step, plan in enumerate(fake.run()) for id in plan.admitted}
    prefill_ends = 3  # steps of 8, 8 and 4 tokens after the admission
    assert admitted[2] == admitted[1] + prefill_ends + 1


def test_finishing_a_waiting_sequence_takes_it_out_of_the_queue() -> None:
    fake = runner(Budget(max_rows=1))
    fake.submit(1, 4, 2)
    fake.submit(2, 4, 2)
    fake.step()
    fake.cancel(2)
    fake.cancel(1)
    assert fake.scheduler.plan() == StepPlan(())


@given(st.integers(2, 500), st.integers(3, 64))
def test_chunks_cover_the_prompt_within_the_budget_and_none_has_one_token(prompt: int, budget: int) -> None:
    done = 0
    while done < prompt:
        size = chunk_size(prompt - done, budget)
        assert 2 <= size <= budget
        done += size
    assert done == prompt


@pytest.mark.parametrize("budget", [1, 2])
def test_no_chunk_where_a_single_token_would_be_left(budget: int) -> None:
    assert chunk_size(3, budget) == 0


def test_jobs_share_a_side_run_by_key_one_run_at_a_time() -> None:
    scheduler = Scheduler({}, side_batch=2)
    for id, stage, key in ((1, "a", 0), (2, "b", 0), (3, "a", 1), (4, "a", 0), (5, "a", 0)):
        scheduler.submit_job(JobTicket(id, stage, key))
    started = []
    while (plan := scheduler.plan()).side is not None:
        started.append(plan.side.jobs)
        assert scheduler.plan().side is None
        scheduler.end_side_run([""] * len(plan.side.jobs))
    assert started == [(1, 4), (2,), (3,), (5,)]
    assert scheduler.num_waiting == 0


def test_important_jobs_go_first_and_waiting_makes_important() -> None:
    scheduler = Scheduler({})
    scheduler.submit_job(JobTicket(1, "a", 1, Priority.LOW))
    scheduler.submit_job(JobTicket(2, "a", 2, Priority.HIGH))
    assert scheduler.plan().side == SideRun("a", (2,))
    for _ in range(2 * AGING_STEPS):
        assert scheduler.plan().side is None
    scheduler.end_side_run([""])
    scheduler.submit_job(JobTicket(3, "a", 3, Priority.HIGH))
    assert scheduler.plan().side == SideRun("a", (1,))


def test_a_job_that_has_started_is_not_taken_back() -> None:
    scheduler = Scheduler({})
    scheduler.submit_job(JobTicket(1, "a"))
    scheduler.submit_job(JobTicket(2, "a"))
    assert scheduler.plan().side == SideRun("a", (1,))
    assert not scheduler.forget_job(1)
    assert scheduler.forget_job(2)
    assert not scheduler.can_start_job


def test_pages_besides_those_of_tokens_are_held_from_entry_to_end() -> None:
    scheduler = Scheduler({LOOP: Budget(max_rows=4, num_pages=10)}, FirstCome(), Costs())
    for id in (1, 2, 3):
        scheduler.submit(Ticket(id, LOOP, num_tokens=8, max_tokens=20, extra_pages=3))
    assert scheduler.plan().admitted == (1, 2)  # 4 pages each; the third would leave no page of growth
    assert scheduler.free_pages(LOOP) == 2
    scheduler.finish(1)
    assert scheduler.free_pages(LOOP) == 6
    assert scheduler.plan().admitted == (3,)
    scheduler.finish(2)
    scheduler.finish(3)
    assert scheduler.free_pages(LOOP) == 10


def test_one_token_at_a_time() -> None:
    scheduler = Scheduler({LOOP: Budget()}, FirstCome(), Costs())
    scheduler.submit(Ticket(1, LOOP, num_tokens=3, max_tokens=5, chunks=Chunks(1, 1)))
    scheduler.plan()
    for start in range(3):  # the last is the one from which the next is chosen
        kind = "prefill" if start < 2 else "decode"
        assert spans(scheduler.plan()) == [(kind, start, start + 1, start == 2)]
        scheduler.advance(1, start + 1, 3)


def test_a_first_run_that_takes_all_there_is_minds_no_budget() -> None:
    scheduler = Scheduler({LOOP: Budget(max_rows=4, num_pages=20, prefill_tokens=8)}, FirstCome(), Costs())
    scheduler.submit(Ticket(1, LOOP, num_tokens=30, max_tokens=40, chunks=Chunks(WHOLE, 1)))
    scheduler.submit(Ticket(2, LOOP, num_tokens=20, max_tokens=40, chunks=Chunks(WHOLE, 1)))
    scheduler.plan()
    assert spans(scheduler.plan()) == [("prefill", 0, 30, True)]  # the other one waits for what it leaves: nothing
    scheduler.advance(1, 30, 31)
    assert spans(scheduler.plan()) == [("decode", 30, 31, True), ("prefill", 0, 20, True)]
    scheduler.advance(1, 31, 34)  # three tokens at once, as a grammar forces them
    scheduler.advance(2, 20, 21)
    assert spans(scheduler.plan()) == [("decode", 20, 21, True), ("prefill", 31, 32, False)]

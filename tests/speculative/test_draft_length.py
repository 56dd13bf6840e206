"""How many tokens are drafted: the best number where costs and acceptance are known, never much slower, often faster.

Costs are simulated, so speeds are exact; no time is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from genai_pipeline.speculative.acceptance import Acceptance, expected_tokens
from genai_pipeline.speculative.draft_length import CREDIT, PROBE_SHARE, DraftLength, best_length
from genai_pipeline.speculative.drafter import Source
from genai_pipeline.speculative.run_costs import Load, RunCosts
from genai_pipeline.speculative.speculation import Verified
from genai_pipeline.speculative.stats import SpeculationStats

Make = Callable[..., Any]
STEP = 20.0
SOURCE = Source("guess", 0.5)


def linear(share: float, step: float = STEP) -> Callable[[int, int], float]:
    """A verification in which each token more costs a share of a step, for every row of the run."""
    return lambda rows, tokens: step * (1 + rows * share * (tokens - 1))


def speed(rate: float, share: float, k: int) -> float:
    """Tokens per plain step's time, drafting k tokens each time."""
    return expected_tokens(rate, k) / (1 + share * k)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("drafts", [0, 1, 5])
def test_expected_tokens_sum_over_what_is_accepted(rate: float, drafts: int) -> None:
    by_cases = sum((i + 1) * rate**i * (1 - rate) for i in range(drafts)) + (drafts + 1) * rate**drafts
    assert expected_tokens(rate, drafts) == pytest.approx(by_cases)
    assert expected_tokens(1, drafts) == drafts + 1


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 1.0])
def test_the_best_length_is_the_fastest(rate: float, share: float) -> None:
    extras = [share * STEP * k for k in range(1, 17)]
    best = best_length(rate, STEP, 1, extras)
    assert speed(rate, share, best) == pytest.approx(max(speed(rate, share, k) for k in range(17)))
    # one token pays exactly where it is accepted more often than it costs
    assert (best > 0) == (rate > share)


def test_in_company_drafts_must_beat_the_speed_of_all_rows() -> None:
    extras = [0.1 * STEP * k for k in range(1, 9)]
    assert best_length(0.5, STEP, 1, extras) > 0
    assert best_length(0.5, STEP, 4, extras) == 1  # 0.1 of a step is 0.4 tokens of four rows
    assert best_length(0.5, STEP, 8, extras) == 0


def test_nothing_is_drafted_before_a_plain_step_was_measured() -> None:
    lengths = DraftLength(runs_alone=False, drafts_cost=False)
    assert lengths.choose(1, SOURCE, Load(1, 10), 8) == 0
    lengths.stepped(Load(1, 10), STEP)
    assert lengths.choose(1, SOURCE, Load(1, 10), 8) > 0
    assert lengths.choose(1, SOURCE, Load(1, 10), 0) == 0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("tokens", [64, 128, 1000])
def test_where_nothing_is_accepted_the_loss_is_bounded(machine: Make, text: Make, share: float, tokens: int) -> None:
    made = machine(lambda at: 0.0, verify=linear(share))
    gained = made.run([text(range(50))], tokens) * STEP
    assert gained >= 1 / (1 + PROBE_SHARE + (CREDIT + share) / tokens)
    assert gained >= 0.95
    assert any(made.drafted)


def test_where_nothing_matches_nothing_is_lost(machine: Make, text: Make) -> None:
    made = machine(lambda at: -1.0, verify=linear(0.5))
    assert made.run([text([1])], 200) * STEP == pytest.approx(1)
    assert made.drafter.asked == 0


@pytest.mark.parametrize("share", [0.03, 0.1, 0.19])
@pytest.mark.parametrize("rate", [0.9, 0.97])
def test_text_that_is_copied_is_fast(machine: Make, text: Make, share: float, rate: float) -> None:
    gained = machine(lambda at: rate, verify=linear(share)).run([text(range(50))], 300) * STEP
    best = max(speed(rate, share, k) for k in range(9))
    assert gained > 0.85 * best
    assert gained > 1.8


def test_a_jump_in_cost_for_the_second_token_is_learned(machine: Make, text: Make) -> None:
    made = machine(lambda at: 0.9, verify=lambda rows, tokens: STEP * (1.6 + 0.02 * tokens), most=12)
    made.run([text(range(50))], 2000)
    assert max(made.drafted[-50:]) >= 6


def test_it_is_off_where_it_does_not_pay_and_comes_back(machine: Make, text: Make) -> None:
    made = machine(lambda at: 0.0 if at < 1000 else 0.95, verify=linear(0.15))
    written = text(range(10))
    made.run([written], 980)
    assert sum(1 for count in made.drafted[-200:] if count) <= 200 * PROBE_SHARE / 0.15 + 1
    assert made.run([written], 500) * STEP > 1.8


def test_long_past_makes_drafts_shorter(machine: Make, text: Make) -> None:
    made = machine(lambda at: 0.8, verify=lambda rows, tokens: 0.0, step=lambda rows: STEP)
    made.verify = lambda rows, tokens: STEP * (1 + (0.03 if len(written.tokens) < 1000 else 0.4) * (tokens - 1))
    written = text(range(10))
    made.run([written], 900)
    short, made.drafted = max(made.drafted[-100:]), []
    written.tokens += [0] * 3000
    made.run([written], 900)
    assert short >= 6
    assert max(made.drafted[-100:]) <= 3


def test_sources_are_learned_apart(machine: Make, text: Make) -> None:
    made = machine(
        lambda at: 0.95 if at // 20 % 2 else 0.0,
        name=lambda at: "long" if at // 20 % 2 else "short",
        verify=linear(0.2),
    )
    written = text(range(20))
    made.run([written], 1000)
    acceptance = made.speculation.lengths.acceptance
    assert acceptance.rate(1, Source("long", 0.5)) > 0.6
    assert acceptance.rate(1, Source("short", 0.5)) < 0.2


def test_a_new_sequence_begins_with_what_the_loop_knows_and_learns_fast() -> None:
    acceptance = Acceptance()
    assert acceptance.rate(1, SOURCE) == SOURCE.prior
    for _ in range(20):
        acceptance.verified(1, SOURCE, 4, 4)
    assert acceptance.rate(2, SOURCE) > 0.9
    for _ in range(6):
        acceptance.verified(2, SOURCE, 4, 0)
    assert acceptance.rate(2, SOURCE) < 0.5
    assert acceptance.rate(1, SOURCE) > 0.9
    acceptance.forget(2)
    assert acceptance.rate(2, SOURCE) > 0.8


@pytest.mark.parametrize("rate", [0.0, 0.95])
def test_costly_drafts_have_to_pay_for_themselves(machine: Make, text: Make, rate: float) -> None:
    made = machine(lambda at: rate, verify=linear(0.05), free=False, seconds=0.2 * STEP)
    gained = made.run([text(range(50))], 400) * STEP
    if rate:
        assert gained > 0.8 * max(expected_tokens(rate, k) / (1 + 0.25 * k) for k in range(9))
    else:
        assert gained > 0.95


def test_catching_up_is_paid_from_the_account() -> None:
    lengths = DraftLength(runs_alone=False, drafts_cost=True)
    load = Load(1, 100)
    lengths.stepped(load, STEP)
    assert lengths.choose(1, SOURCE, load, 4) > 0
    lengths.drafted(load, 4, 4.0, 3 * STEP)
    assert lengths.choose(1, SOURCE, load, 4) == 0


def batch_step(rows: int) -> float:
    return 16.0 + 4.0 * rows


@pytest.mark.parametrize("rows", [2, 8])
def test_rows_that_run_alone_must_pay_for_a_run(machine: Make, text: Make, rows: int) -> None:
    def verify(size: int, tokens: int) -> float:
        assert size == 1
        return 20.0 * (1 + 0.05 * (tokens - 1))

    texts = [text(range(50), id=i) for i in range(rows)]
    plain = rows / batch_step(rows)
    lost = machine(lambda at: 0.0, verify=verify, step=batch_step, runs_alone=True).run(texts, 400)
    assert lost > 0.95 * plain
    texts = [text(range(50), id=i) for i in range(rows)]
    copied = machine(lambda at: 0.97, verify=verify, step=batch_step, runs_alone=True).run(texts, 400)
    # alone, each row makes E(k) tokens in a run; eight rows in company are faster than that
    best = expected_tokens(0.97, 8) / verify(1, 9)
    assert copied > 0.95 * plain
    if rows == 2:
        assert best > 2 * plain
        assert copied > 0.7 * best


def test_rows_that_share_a_run_draft_together(machine: Make, text: Make) -> None:
    texts = [text(range(50), id=i) for i in range(4)]
    made = machine(lambda at: 0.95, verify=lambda rows, tokens: 30.0 * (1 + 0.02 * rows * (tokens - 1)))
    made.step = lambda rows: 30.0
    assert made.run(texts, 400) > 1.8 * 4 / 30.0


def test_the_same_calls_give_the_same_answers(machine: Make, text: Make) -> None:
    runs = []
    for _ in range(2):
        made = machine(lambda at: 0.7, verify=linear(0.1))
        made.run([text(range(5))], 300)
        runs.append(made.drafted)
    assert runs[0] == runs[1]


def test_ended_sequences_are_forgotten(machine: Make, text: Make) -> None:
    made = machine(lambda at: 0.9, verify=linear(0.1))
    made.run([text(range(5))], 30)
    made.speculation.forget(1)
    made.speculation.forget(1)
    assert made.drafter.forgotten == [1, 1]
    assert made.speculation._sources == {}
    made.speculation.ran([Verified(1, 40, 3, 1)], STEP)
    assert made.speculation.lengths.acceptance._sequences == {}


def test_one_slow_run_is_not_believed() -> None:
    costs = RunCosts(runs_alone=False)
    for _ in range(10):
        costs.stepped(1, 100, STEP)
    costs.stepped(1, 100, 100 * STEP)
    step = costs.step(1, 100)
    assert step is not None
    assert step < 1.3 * STEP


def test_steps_between_measured_ones_are_interpolated_and_no_saving_is_assumed() -> None:
    costs = RunCosts(runs_alone=True)
    assert costs.step(1, 100) is None
    assert costs.step(0, 100) == 0
    costs.stepped(2, 100, 20.0)
    costs.stepped(6, 100, 40.0)
    assert [costs.step(rows, 100) for rows in (1, 2, 4, 6, 9)] == [20.0, 20.0, 30.0, 40.0, 40.0]
    assert costs.step(4, 5000) == 30.0


def test_costs_of_unmeasured_lengths_come_from_the_nearest() -> None:
    costs = RunCosts(runs_alone=False)
    costs.stepped(1, 100, STEP)
    costs.verified(Load(1, 100), 1, 4, 1.4 * STEP)
    costs.stepped(1, 4000, 2 * STEP)
    near = costs.extras(8, Load(1, 300), drafts_cost=False)
    far = costs.extras(8, Load(1, 4000), drafts_cost=False)
    assert near[3] == pytest.approx(4 * near[0])
    assert near[7] == pytest.approx(2 * near[3])
    assert far == pytest.approx([2 * extra for extra in near])


def test_stats_add_up_over_runs_and_choices() -> None:
    first = SpeculationStats().verified(4, 2).verified(3, 3)
    assert first == SpeculationStats(drafted=7, accepted=5, runs=2)
    assert first + SpeculationStats(1, 0, 1) == SpeculationStats(8, 5, 3)

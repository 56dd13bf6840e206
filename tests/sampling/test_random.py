from __future__ import annotations

from typing import Any

from genai_pipeline.sampling.random import TOKEN_LANE, XTC_LANE, fresh_seed, uniform


def test_numbers_differ_by_seed_choice_index_and_lane() -> None:
    counters = [(seed, choice, index) for seed in range(5) for choice in range(5) for index in range(5)]
    values = {uniform(*counter, lane) for counter in counters for lane in (TOKEN_LANE, XTC_LANE)}
    assert len(values) == 250
    assert all(0 <= value < 1 for value in values)


def test_numbers_are_philox_and_depend_on_no_number_before(twin: Any) -> None:
    for seed, choice, index, lane in ((0, 0, 0, 0), (2**63 - 1, 63, 10**6, 1), (7, 1, 2, 0), (7, 1, 2, 1)):
        assert uniform(seed, choice, index, lane) == twin.number(seed, choice, index, lane)


def test_fresh_seeds_are_seeds_that_a_request_may_name() -> None:
    seeds = {fresh_seed() for _ in range(50)}
    assert len(seeds) == 50
    assert all(0 <= seed < 2**63 for seed in seeds)

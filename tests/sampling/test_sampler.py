from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import GraphRunError, RequestError
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens, draw_position
from genai_pipeline.sampling.state import sampling_state

GREEDY = GenerationOptions(temperature=0)


def tokens(logits: Any, draws: list[Draw]) -> list[int]:
    return [chosen.token for chosen in choose_tokens(np.array(logits, np.float32), draws)]


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    assert tokens([[0, 3, 3, 1], [2, 2, 2, 2]], [Draw(GREEDY, 0, 0, 0)] * 2) == [1, 0]


def test_temperature_zero_is_the_limit_so_that_filters_change_nothing() -> None:
    options = GenerationOptions(temperature=0, typical_p=0.2, xtc_probability=1, top_k=3, top_a=0.5)
    assert tokens([[0, 3, 2, 1]], [Draw(options, 0, 0, 0)]) == [1]


def test_banned_tokens_are_never_chosen() -> None:
    banned = np.array([1, 2])
    assert tokens([[0, 9, 9, 1]], [Draw(GREEDY, 0, 0, 0, banned)]) == [3]
    sampled = tokens([[0, 9, 9, 1]] * 200, [Draw(GenerationOptions(), 1, 0, i, banned) for i in range(200)])
    assert set(sampled) == {0, 3}


@pytest.mark.parametrize("vocabulary", [5, 32, 33, 9000])
def test_a_mask_allows_exactly_the_tokens_whose_bit_is_set(vocabulary: int, bitmask: Any) -> None:
    generator = np.random.default_rng(vocabulary)
    allowed = sorted(generator.choice(vocabulary, 4, replace=False).tolist())
    mask = bitmask(allowed, vocabulary)
    sampled = tokens(
        np.zeros((200, vocabulary)), [Draw(GenerationOptions(), 1, 0, i, None, None, mask) for i in range(200)]
    )
    assert sorted(set(sampled)) == allowed
    logits = generator.normal(size=(1, vocabulary)).astype(np.float32)
    best = max(allowed, key=lambda token: (logits[0, token], -token))
    assert tokens(logits, [Draw(GREEDY, 0, 0, 0, None, None, mask)]) == [best]


def test_tokens_beyond_a_mask_are_not_allowed(bitmask: Any) -> None:
    assert tokens([[*[0.0] * 32, 9.0]], [Draw(GREEDY, 0, 0, 0, None, None, bitmask([31], 32))]) == [31]


@pytest.mark.parametrize("options", [GREEDY, GenerationOptions(), GenerationOptions(top_k=2)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("vocabulary", [4, 5000])
def test_logits_that_are_no_numbers_are_an_error(options: GenerationOptions, bad: float, vocabulary: int) -> None:
    logits = np.zeros((1, vocabulary), np.float32)
    logits[0, vocabulary // 2] = bad
    with pytest.raises(GraphRunError, match="no token to choose"):
        choose_tokens(logits, [Draw(options, 0, 0, 0)])


@pytest.mark.parametrize("options", [GREEDY, GenerationOptions(), GenerationOptions(top_k=2)])
def test_a_row_without_a_token_left_is_an_error(options: GenerationOptions, bitmask: Any) -> None:
    with pytest.raises(GraphRunError, match="no token to choose"):
        choose_tokens(
            np.zeros((1, 4), np.float32), [Draw(options, 0, 0, 0, np.array([0, 1]), None, bitmask([0, 1], 4))]
        )


def test_extreme_settings_stay_exact_and_warn_of_nothing() -> None:
    logits = np.array([[3e38, -3e38, 0, 1]], np.float32)
    penalised = GenerationOptions(repetition_penalty=100.0, temperature=5e-324, top_p=1e-300)
    state = sampling_state(penalised, [1])
    assert tokens(logits, [Draw(penalised, 0, 0, 0, None, state)]) == [0]
    favoured = GenerationOptions(repetition_penalty=5e-324, temperature=0)
    assert tokens([[9, 2, 0]], [Draw(favoured, 0, 0, 0, None, sampling_state(favoured, [1]))]) == [1]
    dry = GenerationOptions(dry_multiplier=100.0, dry_base=100.0, dry_sequence_breakers=(), temperature=0)
    assert tokens([[9, 1, 0]], [Draw(dry, 0, 0, 0, None, sampling_state(dry, [0] * 60))]) == [1]
    lone = np.array([[-np.inf, 2, -np.inf]], np.float32)
    every = GenerationOptions(top_k=3, top_p=0.5, min_p=1, typical_p=0.1, top_a=1, xtc_probability=1, xtc_threshold=0)
    assert tokens(lone, [Draw(every, 0, 0, 0)]) == [1]


def test_forced_tokens_are_the_first_ones_whatever_the_logits() -> None:
    options = GenerationOptions(forced_token_ids=(2, 2), repetition_penalty=5.0, temperature=0)
    state = sampling_state(options, [2])
    chosen = tokens([[5, 0, -9]] * 3, [Draw(options, 0, 0, i, None, state) for i in range(3)])
    assert chosen == [2, 2, 0]


@pytest.mark.parametrize(
    ("draw", "reason"),
    [
        ({"banned": np.array([2])}, "may not be chosen here"),
        ({"mask": np.array([0b1011], np.int32)}, "the constraint does not allow it"),
        ({"mask": np.array([], np.int32)}, "the constraint does not allow it"),
    ],
)
def test_a_forced_token_that_may_not_be_chosen_is_refused(draw: dict[str, Any], reason: str) -> None:
    options = GenerationOptions(forced_token_ids=(2,))
    with pytest.raises(RequestError, match=reason) as caught:
        choose_tokens(np.zeros((1, 4), np.float32), [Draw(options, 0, 0, 0, **draw)])
    assert caught.value.param == "forced_token_ids"
    with pytest.raises(RequestError, match="the model has 2 tokens"):
        choose_tokens(np.zeros((1, 2), np.float32), [Draw(options, 0, 0, 0)])


def test_options_that_need_a_state_never_run_without_one() -> None:
    with pytest.raises(AssertionError, match="sampling_state"):
        choose_tokens(np.zeros((1, 4), np.float32), [Draw(GenerationOptions(repetition_penalty=2.0), 0, 0, 0)])
    assert sampling_state(GenerationOptions(top_k=4, xtc_probability=0.5, logprobs=True), [1]) is None


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=12),
    st.integers(0, 14),
    st.sampled_from([0.05, 0.3, 0.9, 1.0]),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    st.integers(0, 2**63 - 1),
)
def test_only_allowed_tokens_are_drawn(
    twin: Any, logits: list[int], top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    options = GenerationOptions(top_k=top_k, top_p=top_p, min_p=min_p)
    floats = [value / 2 for value in logits]
    drawn = tokens([floats] * 8, [Draw(options, seed, 0, index) for index in range(8)])
    assert set(drawn) <= twin.distribution(floats, options).keys()


@given(st.data())
def test_the_same_seed_gives_the_same_token_in_any_company(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    vocabulary = data.draw(st.sampled_from([7, 4200]))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    logits = generator.normal(size=(count, vocabulary)).astype(np.float32)
    kinds = st.sampled_from(
        [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.2}, {"typical_p": 0.5}, {"temperature": 0.0}]
    )
    rows = [Draw(GenerationOptions(**data.draw(kinds)), seed, seed % 2, 3) for seed in range(count)]
    order = data.draw(st.permutations(range(count)))
    alone = [choose_tokens(logits[i : i + 1].copy(), [rows[i]])[0] for i in order]
    assert choose_tokens(logits[list(order)], [rows[i] for i in order]) == alone


@given(st.lists(st.sampled_from([0.0, 1e-300, 0.1, 1.0]), min_size=1, max_size=40), st.integers(1, 40), st.floats(0, 1))
def test_a_draw_falls_where_the_numbers_laid_end_to_end_have_it(part: list[float], times: int, number: float) -> None:
    weights = np.array(part * times + [0.5])
    number = min(number, np.nextafter(1, 0))
    position = draw_position(weights, number)
    assert weights[position] > 0
    ends, point = np.cumsum(weights), number * weights.sum()
    slack = 1e-9 * weights.sum()
    assert ends[position] >= point - slack
    assert position == 0 or ends[position - 1] <= point + slack

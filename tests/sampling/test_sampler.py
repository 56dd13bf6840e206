from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.random import uniform
from genai_pipeline.sampling.sampler import Draw, choose_tokens


def draws(logits: list[float], options: GenerationOptions, count: int, seed: int = 5) -> list[int]:
    row = np.array([logits], np.float32)
    return [choose_tokens(row.copy(), [Draw(options, seed, 0, index)])[0].token for index in range(count)]


def allowed_twin(logits: list[float], options: GenerationOptions) -> dict[int, float]:
    """Tokens that may be drawn with their probabilities, by the definitions in plain Python."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if options.top_k:
        order = order[: options.top_k]
    weights = {i: math.exp((logits[i] - logits[order[0]]) / options.temperature) for i in order}
    total = sum(weights.values())
    probabilities = {i: weight / total for i, weight in weights.items()}
    kept, mass = [], 0.0
    for i in order:
        if mass >= options.top_p:
            break
        kept.append(i)
        mass += probabilities[i]
    kept = [i for i in kept if probabilities[i] >= options.min_p * probabilities[order[0]]]
    mass = sum(probabilities[i] for i in kept)
    return {i: probabilities[i] / mass for i in kept}


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    logits = np.array([[0, 3, 3, 1], [2, 2, 2, 2]], np.float32)
    greedy = GenerationOptions(temperature=0)
    assert [c.token for c in choose_tokens(logits, [Draw(greedy, 0, 0, 0)] * 2)] == [1, 0]


def test_banned_tokens_are_never_chosen() -> None:
    banned = np.array([1, 2])
    logits = np.array([[0, 9, 9, 1]], np.float32)
    assert choose_tokens(logits.copy(), [Draw(GenerationOptions(temperature=0), 0, 0, 0, banned)])[0].token == 3
    sampled = {
        choose_tokens(logits.copy(), [Draw(GenerationOptions(), 1, 0, index, banned)])[0].token for index in range(200)
    }
    assert sampled == {0, 3}


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(),
        GenerationOptions(temperature=0.5),
        GenerationOptions(temperature=2.0, top_k=3),
        GenerationOptions(top_p=0.7),
        GenerationOptions(min_p=0.3),
        GenerationOptions(temperature=1.5, top_k=5, top_p=0.8, min_p=0.1),
    ],
)
def test_frequencies_match_the_exact_distribution(options: GenerationOptions) -> None:
    """10,000 draws; a frequency may leave its probability by 5 standard deviations."""
    logits = [0.0, 2.0, 1.0, 1.0, -1.0, 0.5, 2.0]
    expected, count = allowed_twin(logits, options), 10_000
    seen = np.bincount(draws(logits, options, count), minlength=len(logits)) / count
    for token, frequency in enumerate(seen):
        probability = expected.get(token, 0.0)
        assert abs(frequency - probability) <= 5 * math.sqrt(probability * (1 - probability) / count) + 1e-12


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=12),
    st.integers(0, 14),
    st.sampled_from([0.05, 0.3, 0.9, 1.0]),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    st.integers(0, 2**63 - 1),
)
def test_only_allowed_tokens_are_drawn(logits: list[int], top_k: int, top_p: float, min_p: float, seed: int) -> None:
    options = GenerationOptions(top_k=top_k, top_p=top_p, min_p=min_p)
    floats = [value / 2 for value in logits]
    assert set(draws(floats, options, 8, seed)) <= set(allowed_twin(floats, options))


def test_the_same_seed_gives_the_same_draw_in_any_company() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 50)).astype(np.float32)
    options = GenerationOptions(top_k=20)
    rows = [Draw(options, seed, 0, seed) for seed in range(4)]
    together = choose_tokens(logits.copy(), rows)
    alone = [choose_tokens(logits[i : i + 1].copy(), [rows[i]])[0] for i in range(4)]
    backwards = choose_tokens(logits[::-1].copy(), rows[::-1])[::-1]
    assert together == alone == backwards


def test_draws_differ_by_seed_choice_and_index() -> None:
    values = {uniform(seed, choice, index) for seed in range(5) for choice in range(5) for index in range(5)}
    assert len(values) == 125
    assert all(0 <= value < 1 for value in values)

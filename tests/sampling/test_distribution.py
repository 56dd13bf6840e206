"""10,000 draws against the exact distribution.

Bound: Pearson's chi-square stays below the value that a right sampler exceeds once in a million tries (Wilson and
Hilferty's approximation of the quantile). Seeds are fixed, so a passing test stays passing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import sampling_state

LOGITS = [0.0, 2.0, 1.0, 1.0, -1.0, 0.5, 2.0, -0.25]
PROMPT = [1, 2, 1, 2, 1]
COUNT, LEAST_EXPECTED = 10_000, 5
Z = 4.75  # standard normal quantile of 1 - 1e-6


def bound(freedom: int) -> float:
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + Z * math.sqrt(part)) ** 3)


def chi_square(seen: Any, expected: dict[int, float]) -> tuple[float, int]:
    """The statistic over tokens, those that are hardly expected taken together, and its degrees of freedom."""
    assert {token for token, count in enumerate(seen) if count} <= expected.keys()
    cells = [(int(seen[t]), COUNT * p) for t, p in expected.items() if COUNT * p >= LEAST_EXPECTED]
    rare = [(int(seen[t]), COUNT * p) for t, p in expected.items() if COUNT * p < LEAST_EXPECTED]
    cells += [(sum(s for s, _ in rare), sum(e for _, e in rare))] if rare else []
    return sum((s - e) ** 2 / e for s, e in cells if e), len(cells) - 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.3},
        {"typical_p": 0.6},
        {"top_a": 0.5},
        {"mirostat": 2, "mirostat_tau": 1.4},
        {"repetition_penalty": 1.5, "dry_multiplier": 1.0, "dry_sequence_breakers": ()},
        {"xtc_probability": 0.3, "xtc_threshold": 0.1},
        {"temperature": 1.5, "top_k": 6, "top_p": 0.8, "min_p": 0.1},
    ],
    ids=str,
)
def test_frequencies_match_the_exact_distribution(given: dict[str, Any], twin: Any) -> None:
    options = GenerationOptions(**given)
    x = twin.processed(LOGITS, options, PROMPT)
    mu = 2 * options.mirostat_tau if options.mirostat else None
    with_coin, without = (twin.distribution(x, options, coin, mu) for coin in (0.0, 1.0))
    share = options.xtc_probability
    expected = {t: share * with_coin.get(t, 0.0) + (1 - share) * p for t, p in without.items()}
    state = sampling_state(options, PROMPT)
    tokens: list[int] = []
    for start in range(0, COUNT, 1000):
        rows = np.tile(np.array(LOGITS, np.float32), (1000, 1))
        draws = [Draw(options, 5, 0, index, None, state) for index in range(start, start + 1000)]
        tokens += [chosen.token for chosen in choose_tokens(rows, draws)]
    statistic, freedom = chi_square(np.bincount(tokens, minlength=len(LOGITS)), expected)
    assert statistic < bound(max(freedom, 1))


def test_frequencies_over_a_large_vocabulary_match(twin: Any) -> None:
    generator = np.random.default_rng(4)
    logits = generator.normal(size=6000).astype(np.float32)
    logits[generator.choice(6000, 20, replace=False)] += 9
    expected = twin.distribution(logits.tolist(), GenerationOptions())
    tokens: list[int] = []
    for start in range(0, COUNT, 100):
        rows = np.tile(logits, (100, 1))
        draws = [Draw(GenerationOptions(), 8, 0, index) for index in range(start, start + 100)]
        tokens += [chosen.token for chosen in choose_tokens(rows, draws)]
    statistic, freedom = chi_square(np.bincount(tokens, minlength=6000), expected)
    assert freedom >= 20
    assert statistic < bound(freedom)

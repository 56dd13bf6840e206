from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.sampling.candidates import best_first, best_prefix, block_maxima, largest

SIZES = st.sampled_from([1, 2, 63, 300, 4095, 4096, 4097, 4160, 9001])
LEVELS = st.sampled_from([2, 30, 10**6])  # how many different numbers there are: with few, most are ties


def numbers(seed: int, size: int, levels: int, never: float) -> np.ndarray:
    generator = np.random.default_rng(seed)
    found = generator.integers(-levels, levels, size).astype(np.float32)
    found[generator.random(size) < never] = -np.inf
    return found


@given(st.integers(0, 999), SIZES, LEVELS, st.sampled_from([0.0, 0.5, 0.995, 1.0]), st.integers(1, 300))
def test_the_largest_are_those_of_a_sorted_list(seed: int, size: int, levels: int, never: float, k: int) -> None:
    found = numbers(seed, size, levels, never)
    order = [i for i in sorted(range(size), key=lambda i: (-found[i], i)) if found[i] > -np.inf][:k]
    assert best_first(found, k).tolist() == order
    assert largest(found, k).tolist() == sorted(order)
    assert largest(found, k, block_maxima(found)).tolist() == sorted(order)


@given(st.integers(0, 999), SIZES, LEVELS)
def test_blocks_leave_nothing_out(seed: int, size: int, levels: int) -> None:
    found = numbers(seed, size, levels, 0.1)
    assert block_maxima(found).max() == found.max()
    found[seed % size] = np.nan
    assert np.isnan(block_maxima(found).max())


@given(st.integers(0, 999), SIZES, LEVELS, st.sampled_from([1e-9, 0.05, 0.5, 0.9, 0.999, 1.0, 2.0]))
def test_a_prefix_is_that_of_sorting_everything(seed: int, size: int, levels: int, mass: float) -> None:
    scores = numbers(seed, size, levels, 0.0).astype(np.float64)
    weights = np.exp(4 * np.random.default_rng(seed).normal(size=size))
    order = np.argsort(-scores, kind="stable")
    sums = np.cumsum(weights[order])
    expected = order[: int(np.searchsorted(sums, mass * weights.sum())) + 1]
    assert best_prefix(scores, weights, mass * float(weights.sum())).tolist() == expected.tolist()

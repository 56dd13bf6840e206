from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.sampling.candidates import block_maxima
from genai_pipeline.sampling.estimates import draw_from_all, estimable, exact_weights, nucleus_of
from genai_pipeline.sampling.filters import nucleus
from genai_pipeline.sampling.sampler import draw_position

SIZES = st.sampled_from([4096, 5000, 49152])
SCALES = st.sampled_from([0.0, 0.01, 1.0, 3.0, 30.0])
TEMPERATURES = st.sampled_from([0.001, 0.3, 1.0, 5.0, 100.0])


def logits(seed: int, size: int, scale: float, *, whole: bool) -> np.ndarray:
    generator = np.random.default_rng(seed)
    row = (scale * generator.normal(size=size)).astype(np.float32)
    row[generator.integers(0, size, 9)] += np.float32(3 * scale)
    row[generator.random(size) < 0.1] = -np.inf
    return np.round(row) if whole else row


@given(st.integers(0, 999), SIZES, SCALES, TEMPERATURES, st.floats(1e-6, 0.999999), st.booleans())
def test_a_nucleus_is_that_of_float64_or_none(
    seed: int, size: int, scale: float, temperature: float, top_p: float, whole: bool
) -> None:
    row = logits(seed, size, scale, whole=whole)
    peak = float(row.max())
    found = nucleus_of(row, peak, block_maxima(row), temperature, top_p)
    if found is not None:
        weights = exact_weights(row, peak, temperature)
        expected = nucleus(weights, top_p)
        assert found[0].tolist() == expected.tolist()
        assert (found[1] == weights[expected]).all()


@given(st.integers(0, 999), SIZES, SCALES, TEMPERATURES, st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_draw_is_that_of_float64_or_none(
    seed: int, size: int, scale: float, temperature: float, number: float, whole: bool
) -> None:
    row = logits(seed, size, scale, whole=whole)
    peak = float(row.max())
    token = draw_from_all(row, peak, temperature, number)
    if token is not None:
        assert token == draw_position(exact_weights(row, peak, temperature), number)


def test_most_draws_of_a_peaked_row_need_no_more() -> None:
    generator = np.random.default_rng(3)
    row = generator.normal(size=20_000).astype(np.float32)
    row[generator.integers(0, len(row), 30)] += 12
    peak, maxima = float(row.max()), block_maxima(row)
    assert sum(draw_from_all(row, peak, 1.0, number) is None for number in generator.random(500)) < 50
    assert sum(nucleus_of(row, peak, maxima, 1.0, top_p) is None for top_p in np.linspace(0.1, 0.9, 81)) < 5


@pytest.mark.parametrize(("size", "temperature", "expected"), [(4095, 1, False), (4096, 1, True), (9999, 1e-4, False)])
def test_small_and_very_cold_rows_are_not_estimated(size: int, temperature: float, expected: bool) -> None:
    assert estimable(np.zeros(size, np.float32), temperature) is expected


def test_nothing_is_decided_where_the_estimate_leaves_a_doubt() -> None:
    row = np.full(4096, -np.inf, np.float32)
    row[[5, 300, 900]] = np.log([0.5, 0.3, 0.2]).astype(np.float32)
    peak, maxima = float(row.max()), block_maxima(row)
    for boundary, tokens in ((0.5, (5, 300)), (0.8, (300, 900))):
        assert draw_from_all(row, peak, 1.0, boundary) is None
        assert draw_from_all(row, peak, 1.0, boundary - 2e-4) == tokens[0]
        assert draw_from_all(row, peak, 1.0, boundary + 2e-4) == tokens[1]
    row[:] = np.where(np.isfinite(row), row, np.float32(-30))
    for boundary, count in ((0.5, 1), (0.8, 2)):
        assert nucleus_of(row, peak, maxima, 1.0, boundary) is None
        for top_p, size in ((boundary - 1e-3, count), (boundary + 1e-3, count + 1)):
            found = nucleus_of(row, peak, maxima, 1.0, top_p)
            assert found is not None
            assert len(found[0]) == size


def test_a_nucleus_that_ends_among_equal_tokens_outside_is_left_to_float64() -> None:
    row = np.zeros(5000, np.float32)
    assert nucleus_of(row, 0.0, block_maxima(row), 1.0, 0.01) is None

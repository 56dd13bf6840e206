from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import GraphRunError
from genai_pipeline.sampling.logprobs import score_rows
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import sampling_state


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-12, rel=1e-12)


def rows(count: int, vocabulary: int) -> Any:
    return (4 * np.random.default_rng(vocabulary).normal(size=(count, vocabulary))).astype(np.float32)


@pytest.mark.parametrize("vocabulary", [30, 5000])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_of_the_model_are_those_of_the_raw_logits(vocabulary: int, temperature: float, twin: Any) -> None:
    options = GenerationOptions(
        temperature=temperature, top_k=3, repetition_penalty=1.5, logit_bias={2: 50.0}, logprobs=True, top_logprobs=4
    )
    logits = rows(3, vocabulary)
    state = sampling_state(options, [0, 1])
    for row, chosen in zip(
        logits, choose_tokens(logits.copy(), [Draw(options, 1, 0, i, None, state) for i in range(3)]), strict=True
    ):
        expected = twin.log_softmax(row.tolist())
        best = sorted(range(vocabulary), key=lambda i: (-row[i], i))[:4]
        assert chosen.logprobs is not None
        assert chosen.logprobs.token == chosen.token == 2
        assert chosen.logprobs.logprob == near(expected[2])
        assert [(t.token, t.logprob) for t in chosen.logprobs.top] == [(t, near(expected[t])) for t in best]


@pytest.mark.parametrize("vocabulary", [30, 5000])
def test_logprobs_of_the_processed_distribution_are_those_of_the_draw(vocabulary: int, twin: Any) -> None:
    options = GenerationOptions(
        temperature=0.8,
        top_k=6,
        min_p=0.01,
        presence_penalty=0.5,
        logprobs=True,
        top_logprobs=20,
        logprobs_of="processed",
    )
    logits = rows(5, vocabulary)
    state = sampling_state(options, [])
    for row, chosen in zip(
        logits, choose_tokens(logits.copy(), [Draw(options, 1, 0, i, None, state) for i in range(5)]), strict=True
    ):
        spread = twin.distribution(row.tolist(), options)
        assert chosen.logprobs is not None
        assert chosen.logprobs.logprob == near(math.log(spread[chosen.token]))
        expected = sorted(spread, key=lambda i: (-spread[i], i))
        assert [(t.token, t.logprob) for t in chosen.logprobs.top] == [(t, near(math.log(spread[t]))) for t in expected]


def test_processed_logprobs_of_greedy_are_those_of_the_processed_logits(twin: Any) -> None:
    options = GenerationOptions(
        temperature=0, logit_bias={1: 9.0}, logprobs=True, top_logprobs=5, logprobs_of="processed"
    )
    state = sampling_state(options, [])
    (chosen,) = choose_tokens(np.array([[0, 1, 2, 3]], np.float32), [Draw(options, 0, 0, 0, np.array([3]), state)])
    expected = twin.log_softmax([0.0, 10.0, 2.0, -math.inf])
    assert chosen.logprobs is not None
    assert (chosen.token, chosen.logprobs.logprob) == (1, near(expected[1]))
    assert [(t.token, t.logprob) for t in chosen.logprobs.top] == [(t, near(expected[t])) for t in (1, 2, 0)]


def test_a_forced_token_is_certain_and_has_the_models_logprob(twin: Any) -> None:
    logits = np.array([[0, 1, 2]], np.float32)
    processed = GenerationOptions(forced_token_ids=(0,), logprobs=True, top_logprobs=3, logprobs_of="processed")
    (chosen,) = choose_tokens(logits.copy(), [Draw(processed, 0, 0, 0)])
    assert chosen.logprobs is not None
    assert (chosen.logprobs.logprob, [t.token for t in chosen.logprobs.top]) == (0.0, [0])
    of_model = GenerationOptions(forced_token_ids=(0,), logprobs=True, top_logprobs=1)
    (chosen,) = choose_tokens(logits.copy(), [Draw(of_model, 0, 0, 0)])
    assert chosen.logprobs is not None
    assert chosen.logprobs.logprob == near(twin.log_softmax([0.0, 1.0, 2.0])[0])
    assert [t.token for t in chosen.logprobs.top] == [2]


def test_logprobs_come_only_when_asked_for_and_without_alternatives_by_default() -> None:
    logits = np.zeros((1, 3), np.float32)
    assert choose_tokens(logits.copy(), [Draw(GenerationOptions(), 0, 0, 0)])[0].logprobs is None
    (chosen,) = choose_tokens(logits, [Draw(GenerationOptions(logprobs=True), 0, 0, 0)])
    assert chosen.logprobs is not None
    assert chosen.logprobs.top == ()
    assert chosen.logprobs.logprob == near(-math.log(3))


def test_scores_are_the_log_softmax_at_given_tokens(twin: Any) -> None:
    logits = rows(4, 5000)
    before = logits.copy()
    for row, token, scored in zip(before, [0, 7, 4999, 3], score_rows(logits, [0, 7, 4999, 3], 2), strict=True):
        expected = twin.log_softmax(row.tolist())
        assert (scored.token, scored.logprob) == (token, near(expected[token]))
        best = sorted(range(5000), key=lambda i: (-row[i], i))[:2]
        assert [(t.token, t.logprob) for t in scored.top] == [(t, near(expected[t])) for t in best]
    assert (logits == before).all()
    assert score_rows(logits[:1], [5])[0].top == ()


def test_a_token_without_probability_has_minus_infinity() -> None:
    (scored,) = score_rows(np.array([[0, -np.inf, 0]], np.float32), [1], 3)
    assert scored.logprob == -math.inf
    assert [t.token for t in scored.top] == [0, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_no_numbers_have_no_scores(bad: float) -> None:
    with pytest.raises(GraphRunError, match="no log probabilities"):
        score_rows(np.array([[0, bad]], np.float32), [0])

"""Log probabilities and scores against the logits of closed-form graphs in float64, however a prompt is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.errors import OptionError
from genai_pipeline.scheduler.budget import Costs
from genai_pipeline.testing.builder import head_base

PEAK = 4.0
STATES = ["in_place", "append", "scatter"]
TEXTS = ["ab", "bcd", "efghijk", "l" * 17, "mn" * 40, "abab", "q" * 63, "rst" * 40]


def logits(rule: Any, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """After ``tokens``: half the peak for each of the two digits that a token has in common with the right one."""
    size = rule.vocabulary
    (answer,) = rule.expected(tokens, 1)
    base = head_base(size)
    ids = np.arange(size)
    return PEAK / 2 * ((ids // base == answer // base).astype(np.float64) + (ids % base == answer % base))


def log_softmax(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())


def twin(package: Any, tokens: Sequence[int]) -> list[float]:
    """The log probability of each token after the first."""
    return _twin(package.twin, tuple(tokens))


@cache
def _twin(rule: Any, tokens: tuple[int, ...]) -> list[float]:
    return [float(log_softmax(logits(rule, tokens[:i]))[tokens[i]]) for i in range(1, len(tokens))]


def scores(logprobs: Any) -> list[float]:
    return [scored.logprob for scored in logprobs]


def close(value: Any) -> Any:
    return pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("chunk", [3, 16, 512])
@pytest.mark.parametrize("update", STATES)
def test_scores_are_those_of_the_graph_for_any_chunk(open_tiny: Any, update: str, chunk: int) -> None:
    pipe, package = open_tiny("kv", update=update, peak=PEAK, load={"prefill_chunk": chunk})
    for text in TEXTS:
        tokens = package.vocabulary.encode(text)
        score = pipe.score(tokens=tokens)
        assert score.tokens == tuple(tokens)
        assert [scored.token for scored in score.logprobs] == tokens[1:]
        assert scores(score.logprobs) == close(twin(package, tokens))
        assert score.logprob == close(sum(twin(package, tokens)))
        assert (score.usage.prompt_tokens, score.usage.completion_tokens) == (len(tokens), 0)


@pytest.mark.parametrize("update", STATES)
def test_scores_in_company_cold_and_warm(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, peak=PEAK, load={"max_batch": 4, "prefill_chunk": 24})
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    for _ in range(2):  # the second time all prompts are cached
        ask = {"temperature": 0, "max_new_tokens": 4, "ignore_eos": True}
        streams = [pipe.stream(tokens=prompt, prompt_logprobs=2, **ask) for prompt in prompts]
        others = [pipe.stream(tokens=prompt, **ask) for prompt in prompts]
        for stream, prompt in zip(streams, prompts, strict=True):
            result = collect_result(stream)
            assert scores(result.prompt_logprobs) == close(twin(package, prompt))
            assert list(result.tokens) == package.expected(prompt, 4)
            assert result.usage.cached_tokens == 0
        for stream, prompt in zip(others, prompts, strict=True):
            assert list(collect_result(stream).tokens) == package.expected(prompt, 4)
        for prompt in prompts:
            assert scores(pipe.score(tokens=prompt).logprobs) == close(twin(package, prompt))


@pytest.mark.parametrize("by", ["swap", "recompute"])
@pytest.mark.parametrize("update", STATES)
def test_scores_of_preempted_prompts(open_tiny: Any, update: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Costs, "swaps", property(lambda self: by == "swap"))
    page = 16 * 2 * 2 * 2 * 8 * 4 * (2 if update == "append" else 1)
    load = {"max_batch": 6, "memory": 17 * page * 4 // 3 + page // 2, "prefill_chunk": 16}
    pipe, package = open_tiny("kv", update=update, peak=PEAK, load=load)
    prompts = [package.vocabulary.encode(text) for text in TEXTS[-6:]]
    ask = {"temperature": 0, "max_new_tokens": 100, "ignore_eos": True, "prompt_logprobs": 0}
    streams = [pipe.stream(tokens=prompt, **ask) for prompt in prompts]
    urgent = pipe.stream(tokens=prompts[0] * 20, priority="high", **ask)
    for stream, prompt in zip([urgent, *streams], [prompts[0] * 20, *prompts], strict=True):
        result = collect_result(stream)
        assert scores(result.prompt_logprobs) == close(twin(package, prompt))
        assert list(result.tokens) == package.expected(prompt, 100)
    assert pipe.stats()["preemptions"][by] > 0


def test_alternatives_are_the_likeliest_tokens(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", peak=PEAK)
    tokens = package.vocabulary.encode("alternatives")
    score = pipe.score(tokens=tokens, top=4)
    for index, scored in enumerate(score.logprobs, 1):
        expected = log_softmax(logits(package.twin, tokens[:index]))
        best = sorted(range(len(expected)), key=lambda token: (-expected[token], token))[:4]
        assert [other.token for other in scored.top] == best
        assert scores(scored.top) == close([float(expected[token]) for token in best])
    assert all(scored.top == () for scored in pipe.score(tokens=tokens).logprobs)


def test_a_prompt_of_one_token_has_no_scores(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    score = pipe.score(tokens=[package.vocabulary.id("a")])
    assert (score.logprobs, score.logprob, score.perplexity) == ((), 0.0, 1.0)


def test_what_is_scored_is_the_prompt_as_it_is_rendered(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", peak=PEAK)
    tokens = package.vocabulary.chat_prompt(("user", "hello"))
    assert scores(pipe.score("hello").logprobs) == close(twin(package, tokens))
    raw = package.vocabulary.encode("hello")
    assert scores(pipe.score("hello", raw=True).logprobs) == close(twin(package, raw))
    assert pipe.score("hello", raw=True).perplexity == pytest.approx(math.exp(-np.mean(twin(package, raw))))


def test_scores_do_not_depend_on_samples(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", peak=PEAK, load={"max_batch": 3})
    tokens = package.vocabulary.encode("samples" * 5)
    result = pipe.generate(tokens=tokens, n=4, seed=1, max_new_tokens=9, prompt_logprobs=0)
    assert scores(result.prompt_logprobs) == close(twin(package, tokens))
    without = pipe.generate(tokens=tokens, n=4, seed=1, max_new_tokens=9)
    assert without.choices == result.choices
    assert without.prompt_logprobs is None


@pytest.mark.parametrize("update", STATES)
def test_logprobs_of_the_model_follow_from_its_logits(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, peak=PEAK, load={"max_batch": 4})
    asks = [
        {"seed": 1},
        {"temperature": 0},
        {"seed": 2, "temperature": 0.3, "top_k": 3},
        {"seed": 3, "repetition_penalty": 1.5, "logit_bias": {20: 5.0}},
        {"seed": 4, "regex": "[a-c]{20}"},
        {"temperature": 0, "forced_token_ids": [30, 31]},
    ]
    prompt = package.vocabulary.encode("model")
    more = {"tokens": prompt, "logprobs": True, "top_logprobs": 2, "max_new_tokens": 12}
    alone = [pipe.generate(**more, **ask) for ask in asks]
    streams = [pipe.stream(**more, **ask) for ask in asks]
    for stream, right in zip(streams, alone, strict=True):
        events = list(stream)
        result = collect_result(events)
        assert result.choices == right.choices
        assert tuple(event.logprobs for event in events if event.logprobs is not None) == result.choices[0].logprobs
        found = result.choices[0].logprobs or ()
        assert len(found) == result.usage.completion_tokens
        assert tuple(scored.token for scored in found)[: len(result.tokens)] == result.tokens
        for index, scored in enumerate(found):
            expected = log_softmax(logits(package.twin, [*prompt, *result.tokens[:index]]))
            assert scored.logprob == close(float(expected[scored.token]))
            assert scores(scored.top) == close(sorted(expected.tolist(), reverse=True)[:2])


def test_logprobs_of_what_tokens_are_drawn_from(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", peak=PEAK)
    prompt = package.vocabulary.encode("processed")
    more = {"logprobs": True, "top_logprobs": 3, "logprobs_of": "processed", "max_new_tokens": 15, "ignore_eos": True}
    result = pipe.generate(tokens=prompt, seed=5, temperature=0.5, top_k=3, banned_token_ids=[20], **more)
    for index, scored in enumerate(result.choices[0].logprobs or ()):
        values = logits(package.twin, [*prompt, *result.tokens[:index]]) / 0.5
        values[20] = -np.inf
        best = sorted(range(len(values)), key=lambda token: (-values[token], token))[:3]
        expected = log_softmax(values[best])
        assert [other.token for other in scored.top] == best
        assert scores(scored.top) == close(expected.tolist())
        assert scored.logprob == close(float(expected[best.index(scored.token)]))


@pytest.mark.parametrize("kind", ["end", "stop_token"])
def test_the_end_token_has_log_probabilities_too(open_tiny: Any, kind: str) -> None:
    pipe, package = open_tiny("script", script=["O", " P", " Q"])
    stops = {"stop_token_ids": [package.vocabulary.id(" Q")]} if kind == "stop_token" else {}
    ask = {"raw": True, "temperature": 0, "logprobs": True, **stops}
    events = list(pipe.stream("<|go|>", **ask))
    result = collect_result(events)
    tokens = ["O", " P", " Q"] if kind == "stop_token" else ["O", " P", " Q", "</s>"]
    assert [s.token for s in result.choices[0].logprobs or ()] == package.vocabulary.id_list(tokens)
    assert [event.token for event in events if event.token is not None] == list(result.tokens)
    assert len(result.tokens) == len(tokens) - 1
    assert result.usage.completion_tokens == len(tokens)
    assert [event.finish_reason for event in events if event.finish_reason] == ["stop"]
    assert events[-1].usage is not None
    assert pipe.generate("<|go|>", **ask).choices == result.choices


@pytest.mark.parametrize(("top", "count"), [({}, 0), ({"top_logprobs": 0}, 0), ({"top_logprobs": 5}, 5)])
def test_the_chosen_token_is_always_there(open_tiny: Any, top: dict[str, int], count: int) -> None:
    pipe, _ = open_tiny("kv", peak=PEAK)
    result = pipe.generate("a", temperature=0, max_new_tokens=4, ignore_eos=True, logprobs=True, **top)
    logprobs = result.choices[0].logprobs or ()
    assert tuple(scored.token for scored in logprobs) == result.tokens
    assert [len(scored.top) for scored in logprobs] == [count] * 4
    assert result.to_dict()["choices"][0]["logprobs"][0]["top"] == [other.to_dict() for other in logprobs[0].top]
    with pytest.raises(OptionError, match="top_logprobs"):
        pipe.generate("a", top_logprobs=3)
    assert pipe.generate("a", temperature=0, max_new_tokens=4).choices[0].logprobs is None

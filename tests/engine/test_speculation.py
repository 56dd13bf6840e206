"""Drafts change nothing: every answer is the one that the same request gets alone and without drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.types import Result

STATES = ["in_place", "append", "scatter"]
DRAFTERS = ["lookup", "package", "foresight"]
TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "abab", "q" * 33, "rst" * 5]
LOAD = {"max_batch": 4, "prefill_chunk": 24}

# What a request may ask for besides: each of these bears on the choice of tokens or on where they end.
REQUESTS: list[dict[str, Any]] = [
    {},
    {"speculate": False},
    {"logprobs": True, "top_logprobs": 3},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    {"no_repeat_ngram_size": 2},
    {"min_new_tokens": 15, "stop_token_ids": list(range(20, 60))},
    {"stop_token_ids": list(range(20, 40))},
    {"forced_token_ids": [30, 31, 32, 33]},
    {"banned_token_ids": [20, 21, 22], "logit_bias": {30: 20.0, 31: 19.5}},
    {"regex": "[a-m]{3,40}"},
    {"regex": "(ab|cd|[e-z]{2})*", "logprobs": True, "logprobs_of": "processed"},
    {"choices": ["abcabcabc", "xyz"]},
    {"max_new_tokens": 3},
    {"max_new_tokens": 1},
    {"n": 3},
    {"dry_multiplier": 0.8, "logprobs": True},
    {"prompt_logprobs": 2},
]
SEEDED: list[dict[str, Any]] = [
    {"mirostat": 2},
    {"xtc_probability": 0.5},
    {"top_k": 5, "min_p": 0.01},
    {"n": 2, "top_p": 0.9},
]


def requests(seeded: bool) -> list[dict[str, Any]]:
    made = []
    for index, options in enumerate([*REQUESTS, *(SEEDED if seeded else ())]):
        sampling = {"temperature": 0.8, "seed": index} if seeded else {"temperature": 0}
        made.append({"max_new_tokens": 40, **sampling, **options, "text": TEXTS[index % len(TEXTS)]})
    return made


def ask(pipe: Any, package: Any, request: dict[str, Any]) -> Any:
    """The stream of a request."""
    options = dict(request)
    return pipe.stream(tokens=package.vocabulary.encode(options.pop("text")), **options)


def together(pipe: Any, package: Any, given: Sequence[dict[str, Any]]) -> list[Result]:
    streams = [ask(pipe, package, request) for request in given]
    return [collect_result(stream) for stream in streams]


def plain(result: Result) -> tuple[Any, ...]:
    """What must not depend on drafts."""
    return result.choices, result.usage.prompt_tokens, result.usage.completion_tokens, result.prompt_logprobs


def truth_of(package: Any, given: Sequence[dict[str, Any]], results: Sequence[Result]) -> dict[Any, Any]:
    truth: dict[Any, Any] = {}
    for request, result in zip(given, results, strict=True):
        for choice in result.choices:
            truth[tuple(package.vocabulary.encode(request["text"])), choice.index] = choice.tokens
    return truth


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("update", STATES)
def test_answers_are_those_without_drafts_in_any_company(
    open_tiny: Any, eager: Any, foresight: Any, update: str, drafter: str, seeded: bool
) -> None:
    options = {"update": update, "peak": 1.0 if seeded else 16.0}
    given = requests(seeded)
    reference, package = open_tiny("kv", load={"prefix_cache": False}, **options)
    expected = [collect_result(ask(reference, package, request)) for request in given]
    draft = {"layers": 1} if drafter == "package" else None
    pipe, _ = open_tiny("kv", load={**LOAD, "draft": "lookup"}, draft=draft, **options)
    eager(pipe, foresight(truth_of(package, given, expected), wrong=0.2) if drafter == "foresight" else None)
    results = together(pipe, package, given)
    for request, result, right in zip(given, results, expected, strict=True):
        assert plain(result) == plain(right), request
    assert sum(result.usage.drafted_tokens or 0 for result in results) > 20
    assert results[1].usage.drafted_tokens is None

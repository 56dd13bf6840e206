"""Reuse of prefixes changes no token, says how much it spared, and can be switched off."""

from __future__ import annotations

from typing import Any

import pytest

UPDATES = ["in_place", "append", "scatter"]


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("length", [15, 16, 17, 18, 31, 32, 33, 34, 100])
def test_the_same_request_again_and_again(open_tiny: Any, update: str, length: int) -> None:
    pipe, package = open_tiny("kv", update=update)
    prompt = package.vocabulary.encode("abcdefghij" * 10)[:length]
    expected = package.answer(prompt, 9)
    cached = []
    for _ in range(4):
        result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=9)
        assert list(result.tokens) == expected
        cached.append(result.usage.cached_tokens)
    pages = (length - 2) // 16 * 16  # two tokens at least are computed again
    assert cached == [0, pages, pages, pages]


def test_a_longer_prompt_reuses_the_answer_before_it(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    prompt = package.vocabulary.encode("conversation " * 5)
    first = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=20, ignore_eos=True)
    longer = [*prompt, *first.tokens, *package.vocabulary.encode(" and on")]
    second = pipe.generate(tokens=longer, temperature=0, max_new_tokens=8)
    assert list(second.tokens) == package.answer(longer, 8)
    assert second.usage.cached_tokens == (len(prompt) + 19) // 16 * 16


def test_a_prompt_that_parts_in_the_middle_shares_what_comes_before(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    head = package.vocabulary.encode("h" * 50)
    for tail in ("one", "two", "three"):
        prompt = [*head, *package.vocabulary.encode(tail)]
        result = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=8)
        assert list(result.tokens) == package.answer(prompt, 8)
    assert result.usage.cached_tokens == 48


def test_switched_off_nothing_is_reused(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", load={"prefix_cache": False})
    prompt = package.vocabulary.encode("a" * 40)
    results = [pipe.generate(tokens=prompt, temperature=0, max_new_tokens=5) for _ in range(3)]
    assert [result.usage.cached_tokens for result in results] == [0, 0, 0]
    assert len({result.tokens for result in results}) == 1


@pytest.mark.parametrize("max_batch", [1, 4])
def test_recurrent_state_resumes_only_where_it_was_kept(open_tiny: Any, max_batch: int) -> None:
    pipe, package = open_tiny("recurrent", load={"max_batch": max_batch, "prefill_chunk": 16})
    prompts = [package.vocabulary.encode(text) for text in ("abc", "d" * 40, "abc", "ef" * 30, "d" * 40)]
    for _ in range(2):
        streams = [pipe.stream(tokens=prompt, temperature=0, max_new_tokens=9) for prompt in prompts]
        for stream, prompt in zip(streams, prompts, strict=True):
            assert [event.token for event in stream if event.token is not None] == package.answer(prompt, 9)

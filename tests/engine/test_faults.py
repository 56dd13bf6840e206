"""Faults of one request stay its own, and its caller is told."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import GraphRunError, RequestError, RequestTimeoutError


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of prompts that begin with token 7 are not numbers."""
    run = Lane.run

    def broken(self: Lane, batch: Any) -> Any:
        logits = run(self, batch)
        rows = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        for row, sequence in zip(logits, rows, strict=True):
            if sequence.tokens[0] == 7:
                row[:] = np.nan
        return logits

    monkeypatch.setattr(Lane, "run", broken)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_that_are_no_numbers_end_their_request_alone(open_tiny: Any, temperature: float) -> None:
    pipe, package = open_tiny("kv")
    prompt = package.vocabulary.encode("abc")
    good = pipe.stream(tokens=prompt, temperature=0, max_new_tokens=40, ignore_eos=True)
    with pytest.raises(GraphRunError, match="nan"):
        pipe.generate(tokens=[7, 8, 9], temperature=temperature)
    assert [event.token for event in good if event.token is not None] == package.expected(prompt, 40)


def test_all_tokens_banned_is_an_error_not_a_token(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    everything = list(range(len(package.vocabulary)))
    with pytest.raises(GraphRunError, match="no token to choose"):
        pipe.generate("x", temperature=0, min_new_tokens=2, stop_token_ids=everything)


def test_generate_raises_for_any_number_of_choices(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096)
    for n in (1, 3):
        with pytest.raises(RequestTimeoutError):
            pipe.generate("x", n=n, ignore_eos=True, timeout=0.05)


def test_every_choice_has_one_last_event(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=4096, peak=1.0, load={"max_batch": 4})
    stream = pipe.stream("x", n=3, seed=1, ignore_eos=True)
    for _ in range(20):
        next(stream)
    stream.cancel()
    last = [(event.index, event.finish_reason) for event in stream if event.finish_reason is not None]
    assert sorted(last) == [(0, "cancelled"), (1, "cancelled"), (2, "cancelled")]


def test_a_default_limit_of_the_package_caps_and_never_refuses(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=64, generation={"defaults": {"max_new_tokens": 40}})
    ask = {"temperature": 0, "ignore_eos": True}
    assert pipe.generate(tokens=package.vocabulary.encode("a" * 10), **ask).usage.completion_tokens == 40
    assert pipe.generate(tokens=package.vocabulary.encode("a" * 50), **ask).usage.completion_tokens == 14
    with pytest.raises(RequestError, match="40"):
        pipe.generate(tokens=package.vocabulary.encode("a" * 50), max_new_tokens=40)


def test_the_minimum_length_holds_against_the_requests_own_end_tokens(open_tiny: Any) -> None:
    pipe, package = open_tiny("script", script=["O", " P", " Q"], end=None)
    stop = package.vocabulary.id("O")
    assert pipe.generate("<|go|>", raw=True, temperature=0, stop_token_ids=[stop]).tokens == ()
    longer = pipe.generate("<|go|>", raw=True, temperature=0, stop_token_ids=[stop], min_new_tokens=2, max_new_tokens=3)
    assert longer.usage.completion_tokens >= 2
    assert longer.tokens[0] != stop


def test_an_event_loop_that_is_gone_harms_nobody(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=4096)

    async def start() -> Any:
        stream = pipe.astream("x", temperature=0, ignore_eos=True, max_new_tokens=500)
        await anext(stream)
        return stream

    left = asyncio.run(start())
    prompt = package.vocabulary.encode("abc")
    assert list(pipe.generate(tokens=prompt, temperature=0, max_new_tokens=9).tokens) == package.answer(prompt, 9)
    del left

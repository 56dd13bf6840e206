"""The engine on real weights: reference tokens through the Python API, and memory that follows the tokens in use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import genai_pipeline as gp

CASES = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]
END_TOKEN = 2


def expected(case: dict[str, Any]) -> list[int]:
    reference: list[int] = case["greedy_tokens"]
    return reference[:-1] if reference[-1] == END_TOKEN else reference


@pytest.fixture(scope="module", params=[16, 512], ids=["chunks of 16", "whole"])
def pipe(smollm2_f32: Path, request: pytest.FixtureRequest) -> Iterator[gp.Pipeline]:
    with gp.load(smollm2_f32, prefill_chunk=request.param) as loaded:
        yield loaded


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prompt"][:20])
def test_greedy_tokens_are_those_of_the_reference(pipe: gp.Pipeline, case: dict[str, Any]) -> None:
    result = pipe.generate(case["prompt"], max_new_tokens=len(case["greedy_tokens"]), temperature=0)
    assert list(result.tokens) == expected(case)
    assert result.usage.prompt_tokens == len(case["prompt_tokens"])
    assert result.text == case["text"].removesuffix("<|im_end|>")


@pytest.mark.parametrize("pages", [None, 12])
def test_together_in_small_memory_and_again_the_tokens_are_those_of_the_reference(
    smollm2_f32: Path, pages: int | None
) -> None:
    """Batched, padded first prefills, joined late, preempted (12 pages for 8 sequences of 6), from the prefix cache."""
    page_bytes = 16 * 30 * 2 * 3 * 64 * 4
    memory: Any = "auto" if pages is None else pages * page_bytes * 4 // 3 + 16
    with gp.load(smollm2_f32, max_batch=8, memory=memory) as pipe:
        for _ in range(2):
            streams = [
                pipe.stream(case["prompt"], max_new_tokens=len(case["greedy_tokens"]), temperature=0)
                for case in (*CASES, *CASES)
            ]
            for stream, case in zip(streams, (*CASES, *CASES), strict=True):
                assert [event.token for event in stream if event.token is not None] == expected(case)


def test_cache_memory_is_that_of_the_tokens_in_use_and_the_rest_stays_flat(smollm2_f32: Path) -> None:
    """Context 8192: resident bytes of the cache within 15 % of the tokens' own; scratch flat from 2,000 tokens on."""
    with gp.load(smollm2_f32, prefill_chunk=128, prefix_cache=False) as pipe:
        (pool,) = pipe._assembly.pools.values()
        token_bytes = 30 * 2 * 3 * 64 * 4
        scratch = {}
        for length in (300, 2000, 4000):
            with pipe.stream(tokens=[260] * length, temperature=0, ignore_eos=True) as stream:
                for _ in range(4):
                    next(stream)
                resident = pool.usage().resident_bytes
                assert resident is not None
                assert length * token_bytes <= resident <= 1.15 * (length + 20) * token_bytes
                scratch[length] = psutil.Process().memory_info().rss - resident
        assert abs(scratch[4000] - scratch[2000]) <= 32 * 2**20

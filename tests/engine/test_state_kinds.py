"""State that is replaced or written once, through the engine: chunked, batched, forked, preempted, reused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from genai_pipeline.kv import pool as pool_module

TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "bcd", "l" * 30]
KINDS = ["recurrent", "unpadded", "append", "in_place", "scatter"]


def listening(metadata: dict[str, Any]) -> None:
    """Encoder and decoder in one loop: what the decoder hears is its own prompt, and its first run keeps that."""
    encode, loop = metadata["stages"]
    del encode["id"]
    loop["prompt"] = "prompt.tokens"
    loop["body"].insert(0, encode)
    metadata["stages"] = [loop]


class Tiny:
    """A pipeline of one kind, and what it has to answer."""

    def __init__(self, open_tiny: Any, kind: str, **load: Any) -> None:
        self.crosses = kind not in ("recurrent", "unpadded")
        options = {"update": kind, "captured": True, "edit": listening} if self.crosses else {}
        if kind == "unpadded":
            options["padded"] = False
        self.pipe, self.package = open_tiny("cross" if self.crosses else "recurrent", load=load, **options)

    def encode(self, text: str) -> list[int]:
        return list(self.package.vocabulary.encode(text))

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        if self.crosses:
            return list(replace(self.package.twin, start=tuple(prompt)).expected(prompt, count))
        return list(self.package.expected(prompt, count))

    def together(self, texts: Sequence[str], count: int) -> None:
        """Requests submitted at once each get their own answer."""
        prompts = [self.encode(text) for text in texts]
        ask = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
        streams = [self.pipe.stream(tokens=prompt, **ask) for prompt in prompts]
        for stream, prompt in zip(streams, prompts, strict=True):
            assert [event.token for event in stream if event.token is not None] == self.expected(prompt, count)


@pytest.mark.parametrize("chunk", [3, 4, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_chunks_do_not_matter(open_tiny: Any, kind: str, chunk: int) -> None:
    tiny = Tiny(open_tiny, kind, prefill_chunk=chunk)
    for text in TEXTS:
        tiny.together([text], 9)


@pytest.mark.parametrize("kind", KINDS)
def test_company_does_not_matter(open_tiny: Any, kind: str) -> None:
    tiny = Tiny(open_tiny, kind, max_batch=6, prefill_chunk=24)
    tiny.together(TEXTS, 12)
    tiny.together(TEXTS[::-1], 5)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_one_request(open_tiny: Any, kind: str) -> None:
    tiny = Tiny(open_tiny, kind, max_batch=4)
    prompt = tiny.encode("y" * 40)
    result = tiny.pipe.generate(tokens=prompt, n=3, temperature=0, max_new_tokens=8, ignore_eos=True)
    assert [list(choice.tokens) for choice in result.choices] == [tiny.expected(prompt, 8)] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_preempted_sequences_go_on_as_if_nothing_happened(
    open_tiny: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # State without tokens takes no pages; here it does, so that the pool can be too small for it.
    monkeypatch.setattr(pool_module, "_sizes", lambda page, row, max_rows, capacity, budget: (max_rows, 17))
    tiny = Tiny(open_tiny, kind, max_batch=6)
    tiny.together(TEXTS[:6], 120)
    preempted = tiny.pipe.stats()["preemptions"]
    assert sum(preempted.values()) > 0
    (pool,) = tiny.pipe._assembly.pools.values()
    assert pool.free_pages == pool.num_pages == 17


@pytest.mark.parametrize("kind", ["append", "in_place", "scatter"])
def test_equal_beginnings_of_different_sources_are_not_mixed_up(open_tiny: Any, kind: str) -> None:
    tiny = Tiny(open_tiny, kind)
    beginning = "abcdefgh" * 5
    for text in (beginning, beginning + "ij", beginning + "kl", beginning, beginning + "ij"):
        tiny.together([text], 7)
    prompt = tiny.encode(beginning)
    assert tiny.pipe.generate(tokens=prompt, temperature=0, max_new_tokens=2).usage.cached_tokens == 32

"""Many requests share one engine and get the tokens they would get alone."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import GraphRunError

UPDATES = ["in_place", "append", "scatter"]
TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "q" * 33, "rst", "uvw", "x" * 70]
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4  # tokens, layers, parts, heads, head_dim, float32


def memory_for(pages: int, update: str = "in_place") -> int:
    """Bytes to give so that running sequences have this many pages: a quarter goes to what is kept outside."""
    page = PAGE_BYTES * (2 if update == "append" else 1)  # two buffers
    return pages * page * 4 // 3 + page // 2


def together(pipe: Any, prompts: list[list[int]], **options: Any) -> list[Any]:
    """Results of requests that are all submitted before the first is read."""
    streams = [pipe.stream(tokens=prompt, temperature=0, **options) for prompt in prompts]
    tokens = [[event.token for event in stream if event.token is not None] for stream in streams]
    return tokens


def is_idle(pipe: Any) -> bool:
    pipe.generate("x", max_new_tokens=1)
    scheduler = pipe._assembly.engine._scheduler
    pools = pipe._assembly.pools
    return all(
        pool.free_rows == pool.max_rows and pool.free_pages == pool.num_pages for pool in pools.values()
    ) and all(scheduler.free_pages(loop) == pool.num_pages for loop, pool in pools.items())


@pytest.mark.parametrize("max_batch", [1, 3, 16])
@pytest.mark.parametrize("update", UPDATES)
def test_batched_is_alone(open_tiny: Any, update: str, max_batch: int) -> None:
    pipe, package = open_tiny("kv", update=update, load={"max_batch": max_batch, "prefill_chunk": 24})
    prompts = [package.vocabulary.encode(text) for text in TEXTS]
    assert together(pipe, prompts, max_new_tokens=11) == [package.answer(prompt, 11) for prompt in prompts]
    assert together(pipe, prompts[::-1], max_new_tokens=7) == [package.answer(prompt, 7) for prompt in prompts[::-1]]
    assert is_idle(pipe)


@pytest.mark.parametrize("update", UPDATES)
def test_a_late_request_joins_and_changes_nothing(open_tiny: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, load={"max_batch": 4})
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:3]]
    first = pipe.stream(tokens=prompts[0], temperature=0, max_new_tokens=40, ignore_eos=True)
    head = [next(first).token for _ in range(9)]
    second = pipe.stream(tokens=prompts[1], temperature=0, max_new_tokens=6)
    third = pipe.stream(tokens=prompts[2], temperature=0, max_new_tokens=20)
    rest = [event.token for event in first if event.token is not None]
    assert head + rest == package.expected(prompts[0], 40)
    for stream, prompt, count in ((second, prompts[1], 6), (third, prompts[2], 20)):
        assert [event.token for event in stream if event.token is not None] == package.answer(prompt, count)


def test_requests_do_share_runs(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_tiny("kv", load={"max_batch": 8})
    sizes: list[int] = []
    run = Lane.run

    def traced(self: Lane, batch: Any) -> Any:
        sizes.append(batch.size)
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", traced)
    together(pipe, [package.vocabulary.encode(text) for text in TEXTS[:8]], max_new_tokens=150, ignore_eos=True)
    assert max(sizes) == 8


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("pages", [17, 24])
def test_a_full_pool_preempts_and_every_request_gets_its_tokens(open_tiny: Any, update: str, pages: int) -> None:
    pipe, package = open_tiny("kv", update=update, load={"max_batch": 6, "memory": memory_for(pages, update)})
    prompts = [package.vocabulary.encode(text) for text in TEXTS[:6]]
    expected = [package.expected(prompt, 150) for prompt in prompts]
    assert together(pipe, prompts, max_new_tokens=150, ignore_eos=True) == expected
    assert is_idle(pipe)


def test_what_can_never_fit_is_refused_with_numbers_and_what_named_no_limit_is_capped(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=256, load={"memory": memory_for(16)})
    prompt = package.vocabulary.encode("a" * 20)
    result = pipe.generate(tokens=prompt, temperature=0, ignore_eos=True)
    assert result.usage.completion_tokens == 236
    (pool,) = pipe._assembly.pools.values()
    assert pool.num_pages == 16


def test_a_failing_row_ends_alone_and_its_company_goes_on(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_tiny("kv", load={"max_batch": 4})
    bad = package.vocabulary.id("z")
    run = Lane.run

    def failing(self: Lane, batch: Any) -> Any:
        if any(s.tokens[0] == bad and s.num_generated >= 3 for s in batch.sequences):
            raise GraphRunError("component 'decoder': no")
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", failing)
    prompts = [package.vocabulary.encode(text) for text in ("abc", "zz", "de")]
    streams = [pipe.stream(tokens=prompt, temperature=0, max_new_tokens=12) for prompt in prompts]
    events = [list(stream) for stream in streams]
    for index in (0, 2):
        assert [e.token for e in events[index] if e.token is not None] == package.answer(prompts[index], 12)
    assert events[1][-1].finish_reason == "error"
    assert len([e for e in events[1] if e.token is not None]) == 3
    assert is_idle(pipe)


@pytest.mark.parametrize("update", UPDATES)
def test_samples_share_one_prefill(open_tiny: Any, update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_tiny("kv", update=update, load={"max_batch": 4, "prefix_cache": False})
    prompt = package.vocabulary.encode("y" * 60)
    computed: list[int] = []
    run = Lane.run

    def traced(self: Lane, batch: Any) -> Any:
        computed.append(sum(batch.counts))
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", traced)
    result = pipe.generate(tokens=prompt, n=3, temperature=0, max_new_tokens=8)
    assert [list(choice.tokens) for choice in result.choices] == [package.answer(prompt, 8)] * 3
    assert result.usage.completion_tokens >= 3 * len(result.tokens)
    assert result.usage.prompt_tokens == 60
    assert sum(computed) < 60 + 2 * 4 + 3 * 8  # the prompt once, two tokens for each fork, and the answers
    assert is_idle(pipe)


def test_seeds_are_per_choice_and_hold_in_any_company(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", peak=1.0, load={"max_batch": 8})
    prompt = package.vocabulary.encode("seed")
    ask = {"tokens": prompt, "n": 3, "seed": 7, "max_new_tokens": 12, "ignore_eos": True}
    alone = [choice.tokens for choice in pipe.generate(**ask).choices]
    assert len(set(alone)) == 3
    others = [pipe.stream("noise", max_new_tokens=40, ignore_eos=True) for _ in range(4)]
    assert [choice.tokens for choice in pipe.generate(**ask).choices] == alone
    for other in others:
        other.close()


def test_a_high_priority_passes_those_that_wait(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv", context_length=1024, load={"max_batch": 1})
    running = pipe.stream("x", ignore_eos=True, max_new_tokens=300, priority="high")
    next(running)
    ask = {"max_new_tokens": 3, "ignore_eos": True}
    waiting = [pipe.stream("y", priority=priority, **ask) for priority in ("low", "normal", "high")]
    list(running)
    low, normal, high = (list(stream)[-1].timings.queued for stream in waiting)
    assert high < normal < low

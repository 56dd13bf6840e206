"""Beam search through the engine: equal to a twin in plain Python, in any company, and leaving nothing behind."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from genai_pipeline.engine.beams import Search
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import (
    CapacityError,
    GraphRunError,
    OptionError,
    PromptTooLongError,
    RequestError,
    RequestTimeoutError,
)
from genai_pipeline.scheduler.budget import Costs
from genai_pipeline.testing import TinyPackage

UPDATES = ["in_place", "append", "scatter"]
KINDS = [*UPDATES, "recurrent", "cross in_place", "cross append", "cross scatter"]
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4  # tokens, layers, parts, heads, head_dim, float32
Logits = Callable[[Sequence[int]], list[float]]


def heard(metadata: dict[str, Any]) -> None:
    """The decoder starts from what the encoder hears."""
    metadata["stages"][1]["prompt"] = "prompt.tokens"


def open_beams(open_tiny: Any, kind: str = "in_place", **options: Any) -> Any:
    """A package that declares beam search; several tokens compete."""
    options = {"generation": {"defaults": {"num_beams": 1}}, "peak": 3.0, **options}
    if kind == "recurrent":
        return open_tiny("recurrent", **options)
    update = kind.removeprefix("cross ")
    if kind.startswith("cross "):
        return open_tiny("cross", update=update, captured=True, edit=heard, **options)
    return open_tiny("kv", update=update, **options)


def biases(package: TinyPackage, seed: int = 0, **more: float) -> dict[int, float]:
    """Makes all logits different, so that no two hypotheses score the same."""
    numbers = random.Random(seed)
    found = {token: numbers.uniform(-1, 1) for token in range(len(package.vocabulary))}
    return found | {package.vocabulary.id(token): bias for token, bias in more.items()}


def logits_after(package: TinyPackage, prompt: Sequence[int], bias: dict[int, float]) -> Logits:
    """What the closed-form graphs give after a prompt and some tokens, as their heads are made."""
    size = len(package.vocabulary)
    base, peak = math.ceil(math.sqrt(size)), package.options["peak"]
    twin: Any = package.twin

    def logits(tokens: Sequence[int]) -> list[float]:
        if package.kind == "cross":
            (answer,) = replace(twin, start=(*prompt, *tokens)).expected(prompt, 1)
        else:
            (answer,) = twin.expected([*prompt, *tokens], 1)
        digits = [(token // base == answer // base) + (token % base == answer % base) for token in range(size)]
        return [peak / 2 * same + bias.get(token, 0.0) for token, same in enumerate(digits)]

    return logits


def search(
    logits: Logits,
    ends: set[int],
    count: int,
    *,
    num_beams: int,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    change: Callable[[Sequence[int], list[float]], None] = lambda tokens, row: None,
) -> list[tuple[list[int], float]]:
    """The twin: beam search in plain Python. ``change`` is what processors do to the logits after some tokens."""
    running: list[tuple[list[int], float]] = [([], 0.0)]
    done: list[tuple[list[int], float]] = []
    for length in range(1, count + 1):
        every = []
        for tokens, total in running:
            row = logits(tokens)
            change(tokens, row)
            norm = math.log(math.fsum(math.exp(x) for x in row))
            every += [([*tokens, token], total + x - norm) for token, x in enumerate(row) if x > -math.inf]
        every.sort(key=lambda pair: -pair[1])
        for tokens, total in every[:num_beams]:
            if tokens[-1] in ends or length == count:
                done.append((tokens, total / length**length_penalty))
        done = sorted(done, key=lambda pair: -pair[1])[:num_beams]
        running = [pair for pair in every if pair[0][-1] not in ends][:num_beams]
        if length == count or not running:
            break
        if len(done) == num_beams and (early_stopping or running[0][1] / length**length_penalty <= done[-1][1]):
            break
    return done


def shown(tokens: Sequence[int], package: TinyPackage) -> tuple[list[int], str]:
    """Tokens and finish reason of a hypothesis, as a result shows it."""
    ended = tokens[-1] in package.end_ids
    return list(tokens[:-1] if ended else tokens), "stop" if ended else "length"


def greedy(package: TinyPackage, prompt: Sequence[int], count: int) -> list[int]:
    """What a request without a search has to answer."""
    twin: Any = package.twin
    tokens = (replace(twin, start=tuple(prompt)) if package.kind == "cross" else twin).expected(prompt, count)
    return list(itertools.takewhile(lambda token: token not in package.end_ids, tokens))


def answers(result: Any) -> list[tuple[list[int], str]]:
    return [(list(choice.tokens), choice.finish_reason) for choice in result.choices]


def check(pipe: Any, package: TinyPackage, text: str, count: int, bias: dict[int, float], **options: Any) -> list[Any]:
    """One request, all of whose hypotheses are compared with the twin's."""
    prompt = package.vocabulary.encode(text)
    found = pipe.generate(tokens=prompt, max_new_tokens=count, n=options["num_beams"], logit_bias=bias, **options)
    wanted = search(logits_after(package, prompt, bias), set(package.end_ids), count, **options)
    assert answers(found) == [shown(tokens, package) for tokens, _ in wanted]
    assert found.usage.completion_tokens == sum(len(tokens) for tokens, _ in wanted)
    return wanted


def tokens_of(stream: Any, n: int) -> list[list[int]]:
    """The tokens of each choice."""
    found: list[list[int]] = [[] for _ in range(n)]
    for event in stream:
        found[event.index] += [event.token] if event.token is not None else []
    return found


def is_idle(pipe: Any) -> bool:
    pipe.generate("x", max_new_tokens=1)
    engine = pipe._assembly.engine
    pools = pipe._assembly.pools
    searches = engine._requests._searches.values()
    assert not engine._requests.live
    assert not any(queue._running or queue._waiting for queue in searches)
    return all(
        pool.free_rows == pool.max_rows and pool.free_pages == pool.num_pages for pool in pools.values()
    ) and all(engine._scheduler.free_pages(loop) == pool.num_pages for loop, pool in pools.items())


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_twin(open_tiny: Any, kind: str) -> None:
    pipe, package = open_beams(open_tiny, kind)
    reasons = set()
    for seed, num_beams in enumerate((2, 3, 4)):
        bias = biases(package, seed, **{"</s>": 0.5, "<|im_end|>": 1.5})
        wanted = check(pipe, package, "abc", 8, bias, num_beams=num_beams)
        reasons |= {shown(tokens, package)[1] for tokens, _ in wanted}
    assert reasons == {"stop", "length"}
    assert is_idle(pipe)


@pytest.mark.parametrize("num_beams", [2, 3, 4, 16])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0, -1.0])
def test_penalties_and_stopping(open_tiny: Any, num_beams: int, length_penalty: float) -> None:
    pipe, package = open_beams(open_tiny)
    for seed in range(3):
        bias = biases(package, seed, **{"</s>": 0.7, "<|im_end|>": 0.2})
        options = {"num_beams": num_beams, "length_penalty": length_penalty}
        for early_stopping in (False, True):
            check(pipe, package, "ab", 9, bias, early_stopping=early_stopping, **options)
    assert is_idle(pipe)


def test_one_beam_is_greedy(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny)
    prompt = package.vocabulary.encode("hello")
    assert list(pipe.generate(tokens=prompt, num_beams=1, temperature=0, max_new_tokens=9).tokens) == package.answer(
        prompt, 9
    )


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_n_best_are_returned(open_tiny: Any, n: int) -> None:
    pipe, package = open_beams(open_tiny, "cross append")
    bias = biases(package, 3, **{"</s>": 1.0})
    prompt = package.vocabulary.encode("words")
    wanted = search(logits_after(package, prompt, bias), set(package.end_ids), 7, num_beams=3)
    found = pipe.generate(tokens=prompt, max_new_tokens=7, num_beams=3, n=n, logit_bias=bias)
    assert answers(found) == [shown(tokens, package) for tokens, _ in wanted[:n]]
    assert found.text == package.vocabulary.decode(shown(wanted[0][0], package)[0])
    assert found.outputs["text"] == found.text
    assert found.usage.prompt_tokens > 0
    assert found.timings.decode is not None
    assert is_idle(pipe)


def test_one_token_and_no_end(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny)
    bias = biases(package, 5, **{"</s>": 2.5})
    check(pipe, package, "a", 1, bias, num_beams=4)
    prompt = package.vocabulary.encode("a")
    found = pipe.generate(tokens=prompt, max_new_tokens=5, num_beams=3, n=3, ignore_eos=True, logit_bias=bias)
    wanted = search(logits_after(package, prompt, bias), set(), 5, num_beams=3)
    assert answers(found) == [(tokens, "length") for tokens, _ in wanted]


def test_events_come_at_the_end(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny)
    events = list(pipe.stream("abc", max_new_tokens=6, num_beams=3, n=2, logit_bias=biases(package)))
    assert [event.index for event in events] == sorted(event.index for event in events)
    assert [event.finish_reason is not None for event in events].count(True) == 2
    assert events[-1].usage is not None


def test_processors_follow_each_beam(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny, "append")
    prompt = package.vocabulary.encode("abc")
    bias = biases(package, 7, **{"</s>": 2.0})

    def change(tokens: Sequence[int], row: list[float]) -> None:
        for token in {*prompt, *tokens}:
            row[token] = row[token] / 1.3 if row[token] > 0 else row[token] * 1.3
        for token in tokens:
            row[token] -= 0.5
        for token in {*prompt, *tokens}:
            if ([*prompt, *tokens][-1], token) in bigrams(tokens):
                row[token] = -math.inf
        row[9] = -math.inf
        if len(tokens) < 3:
            for end in package.end_ids:
                row[end] = -math.inf

    def bigrams(tokens: Sequence[int]) -> set[tuple[int, int]]:
        known = [*prompt, *tokens]
        return set(itertools.pairwise(known))

    del bias[9]
    found = pipe.generate(
        tokens=prompt,
        max_new_tokens=9,
        num_beams=4,
        n=4,
        logit_bias=bias,
        repetition_penalty=1.3,
        frequency_penalty=0.5,
        no_repeat_ngram_size=2,
        banned_token_ids=[9],
        min_new_tokens=3,
    )
    wanted = search(logits_after(package, prompt, bias), set(package.end_ids), 9, num_beams=4, change=change)
    assert answers(found) == [shown(tokens, package) for tokens, _ in wanted]


def test_forced_tokens_leave_one_beam_that_spreads_later(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny, "scatter")
    prompt, forced = package.vocabulary.encode("ab"), [20, 21, 22]
    bias = biases(package, 8)
    logits = logits_after(package, prompt, bias)

    def only(tokens: Sequence[int], row: list[float]) -> None:
        if len(tokens) < 3:
            row[:] = [0.0 if token == forced[len(tokens)] else -math.inf for token in range(len(row))]

    options: dict[str, Any] = {"tokens": prompt, "num_beams": 3, "forced_token_ids": forced, "logit_bias": bias}
    found = pipe.generate(max_new_tokens=7, n=3, **options)
    wanted = search(logits, set(package.end_ids), 7, num_beams=3, change=only)
    assert answers(found) == [shown(tokens, package) for tokens, _ in wanted]
    assert list(pipe.generate(max_new_tokens=3, **options).tokens) == forced
    with pytest.raises(RequestError, match="found 1 answers, and n asks for 2") as caught:
        pipe.generate(max_new_tokens=3, n=2, **options)
    assert caught.value.param == "n"
    assert is_idle(pipe)


@pytest.mark.parametrize("kind", KINDS)
def test_in_company(open_tiny: Any, kind: str) -> None:
    pipe, package = open_beams(open_tiny, kind, load={"max_batch": 9})
    bias = biases(package, 11, **{"</s>": 1.0})
    texts = ["a", "bcd", "efghijk", "lm"]
    prompts = [package.vocabulary.encode(text) for text in texts]
    alone = [pipe.stream(tokens=prompt, temperature=0, max_new_tokens=20) for prompt in prompts]
    beams = [
        pipe.stream(tokens=prompt, num_beams=num_beams, n=num_beams, max_new_tokens=9, logit_bias=bias)
        for prompt, num_beams in zip(prompts, (4, 2, 3, 4), strict=True)
    ]
    for stream, prompt in zip(alone, prompts, strict=True):
        assert [event.token for event in stream if event.token is not None] == greedy(package, prompt, 20)
    for stream, prompt, num_beams in zip(beams, prompts, (4, 2, 3, 4), strict=True):
        wanted = search(logits_after(package, prompt, bias), set(package.end_ids), 9, num_beams=num_beams)
        assert tokens_of(stream, num_beams) == [shown(tokens, package)[0] for tokens, _ in wanted]
    assert is_idle(pipe)


def memory_for(pages: int, kind: str) -> int:
    """Bytes of which running sequences get three quarters."""
    page = PAGE_BYTES * (2 if kind == "append" else 1)  # two buffers
    return pages * page * 4 // 3 + page // 2


@pytest.mark.parametrize("swaps", [True, False])
@pytest.mark.parametrize("kind", UPDATES)
def test_preempted_beams_come_back(open_tiny: Any, monkeypatch: pytest.MonkeyPatch, kind: str, swaps: bool) -> None:
    monkeypatch.setattr(Costs, "swaps", property(lambda self: swaps))
    preempt, preempted = DecodeLoop.preempt, []

    def traced(self: DecodeLoop, sequence: Any, *, swap: bool) -> bool:
        preempted.append(sequence.search is not None)
        return preempt(self, sequence, swap=swap)

    advance, others = Search.advance, []

    def disturbed(self: Search, loop: Any) -> None:
        if self.beams[0].num_generated == 5:  # they come in the midst of the search
            ask: dict[str, Any] = {"temperature": 0, "max_new_tokens": 60, "ignore_eos": True, "priority": "high"}
            others.extend(pipe.stream(tokens=prompt, **ask) for prompt in prompts[1:])
        advance(self, loop)

    monkeypatch.setattr(DecodeLoop, "preempt", traced)
    monkeypatch.setattr(Search, "advance", disturbed)
    load = {"max_batch": 6, "memory": memory_for(17, kind), "prefix_cache": swaps}
    pipe, package = open_beams(open_tiny, kind, load=load)
    bias = biases(package, 12)
    prompts = [package.vocabulary.encode(text) for text in ("k" * 12, "l" * 30, "m" * 14, "n" * 40)]
    wanted = [tokens for tokens, _ in search(logits_after(package, prompts[0], bias), set(), 30, num_beams=3)]
    beams = pipe.stream(
        tokens=prompts[0], num_beams=3, n=3, max_new_tokens=30, logit_bias=bias, priority="low", ignore_eos=True
    )
    assert tokens_of(beams, 3) == wanted
    for stream, prompt in zip(others, prompts[1:], strict=True):
        assert [event.token for event in stream if event.token is not None] == package.expected(prompt, 60)
    assert any(preempted)
    assert is_idle(pipe)


def test_two_searches_that_do_not_fit_together(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny, load={"max_batch": 4})
    bias = biases(package, 13)
    prompts = [package.vocabulary.encode(text) for text in ("ab", "cde", "fghi", "jk", "lmn")]
    streams = [
        pipe.stream(tokens=prompt, num_beams=3, max_new_tokens=6, logit_bias=bias, priority=priority)
        for prompt, priority in zip(prompts, ("low", "high", "normal", "high", "low"), strict=True)
    ]
    for stream, prompt in zip(streams, prompts, strict=True):
        (wanted, _), *_ = search(logits_after(package, prompt, bias), set(package.end_ids), 6, num_beams=3)
        assert [event.token for event in stream if event.token is not None] == shown(wanted, package)[0]
    assert is_idle(pipe)


def test_cancelled_searches_leave_nothing(open_tiny: Any) -> None:
    pipe, _ = open_beams(open_tiny, load={"max_batch": 4})
    options: dict[str, Any] = {"num_beams": 4, "n": 3, "max_new_tokens": 200, "ignore_eos": True}
    running, waiting = pipe.stream("abc", **options), pipe.stream("def", **options)
    last = pipe.stream("ghi", **{**options, "max_new_tokens": 3})
    waiting.cancel()
    assert [event.finish_reason for event in waiting] == ["cancelled"] * 3
    running.cancel()
    events = [event for event in running if event.finish_reason is not None]
    assert [(event.index, event.finish_reason) for event in events] == [(i, "cancelled") for i in range(3)]
    assert [event.finish_reason for event in last if event.finish_reason is not None] == ["length"] * 3
    assert is_idle(pipe)


def test_timeouts_end_searches(open_tiny: Any) -> None:
    pipe, _ = open_beams(open_tiny, load={"max_batch": 4})
    for _ in range(2):
        with pytest.raises(RequestTimeoutError):
            pipe.generate("abc", num_beams=4, max_new_tokens=200, ignore_eos=True, timeout=0.01)
    assert is_idle(pipe)


def test_a_failing_run_ends_the_search(open_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, package = open_beams(open_tiny)
    run = Lane.run

    def failing(self: Lane, batch: Any) -> Any:
        if any(sequence.search is not None and sequence.num_generated == 3 for sequence in batch.sequences):
            raise GraphRunError("broken")
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", failing)
    prompt = package.vocabulary.encode("abc")
    beside = pipe.stream(tokens=prompt, temperature=0, max_new_tokens=20)
    with pytest.raises(GraphRunError, match="broken"):
        pipe.generate("abc", num_beams=3, n=2, max_new_tokens=8, ignore_eos=True)
    assert [event.token for event in beside if event.token is not None] == package.answer(prompt, 20)
    assert is_idle(pipe)


def test_drafts_are_not_made_for_beams(open_tiny: Any, eager: Any) -> None:
    pipe, package = open_beams(open_tiny, load={"draft": "lookup"})
    eager(pipe)
    bias = biases(package, 14)
    check(pipe, package, "abcabcabc", 9, bias, num_beams=3)
    assert pipe.generate("abcabc", num_beams=2, max_new_tokens=6).usage.drafted_tokens is None


def test_the_prefix_cache_keeps_what_beams_computed(open_tiny: Any) -> None:
    pipe, package = open_beams(open_tiny)
    bias = biases(package, 15)
    text = "o" * 60
    check(pipe, package, text, 30, bias, num_beams=4)
    check(pipe, package, text, 30, bias, num_beams=4)
    prompt = package.vocabulary.encode(text)
    greedy = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=30)
    assert greedy.usage.cached_tokens > 0
    assert list(greedy.tokens) == package.answer(prompt, 30)


def test_refused_where_it_is_not_declared(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    with pytest.raises(OptionError, match="does not declare beam search") as caught:
        pipe.generate("a", num_beams=2)
    assert caught.value.param == "num_beams"
    assert pipe.generate("a", num_beams=1, max_new_tokens=2).text


def test_declared_by_overrides_within_their_bounds(open_tiny: Any) -> None:
    overrides = {"num_beams": {"maximum": 3}, "max_new_tokens": True}
    pipe, _ = open_tiny("kv", generation={"overrides": overrides})
    assert pipe.generate("a", num_beams=3, max_new_tokens=3)
    with pytest.raises(OptionError, match="allows num_beams at most 3"):
        pipe.generate("a", num_beams=4)


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"temperature": 0.5}, "temperature"),
        ({"temperature": 1.0}, "temperature"),
        ({"top_k": 5}, "top_k"),
        ({"logprobs": True}, "logprobs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"stop": "x"}, "stop"),
        ({"n": 4}, "n"),
        ({"regex": "a+"}, "regex"),
        ({"reasoning_budget": 5}, "reasoning_budget"),
        ({"num_beams": 1, "length_penalty": 2.0}, "length_penalty"),
        ({"num_beams": 17}, "num_beams"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(open_tiny: Any, options: dict[str, Any], param: str) -> None:
    pipe, _ = open_beams(open_tiny)
    with pytest.raises(OptionError) as caught:
        pipe.generate("a", **{"num_beams": 3, "max_new_tokens": 4, **options})
    assert caught.value.param == param
    assert is_idle(pipe)


def test_what_can_never_fit_is_refused_with_numbers(open_tiny: Any) -> None:
    pipe, _ = open_beams(open_tiny, load={"max_batch": 4, "memory": memory_for(17, "in_place")})
    with pytest.raises(CapacityError, match="num_beams is 5, and this pipeline runs 4"):
        pipe.generate("a", num_beams=5)
    with pytest.raises(CapacityError, match="holds 48 tokens for each of 4 beams"):
        pipe.generate(tokens=[10] * 20, num_beams=4, max_new_tokens=29)
    longest = pipe.generate(tokens=[10] * 20, num_beams=4, max_new_tokens=28, ignore_eos=True)
    assert len(longest.tokens) == 28
    capped = pipe.generate(tokens=[10] * 20, num_beams=4, ignore_eos=True)
    assert len(capped.tokens) == 28
    assert any("capped at 28" in note for note in capped.notes)
    with pytest.raises(PromptTooLongError):
        pipe.generate(tokens=[10] * 300, num_beams=2)
    assert is_idle(pipe)


def test_package_defaults_step_back(open_tiny: Any) -> None:
    defaults = {"num_beams": 3, "length_penalty": 2.0}
    pipe, package = open_tiny("kv", peak=3.0, generation={"defaults": defaults})
    bias = biases(package, 16)
    prompt = package.vocabulary.encode("abc")
    assert pipe.options().num_beams == 3
    assert pipe.options().temperature == 0
    found = pipe.generate(tokens=prompt, max_new_tokens=6, logit_bias=bias)
    (wanted, _), *_ = search(
        logits_after(package, prompt, bias), set(package.end_ids), 6, num_beams=3, length_penalty=2.0
    )
    assert list(found.tokens) == shown(wanted, package)[0]
    assert pipe.options(temperature=0.7).num_beams == 1
    assert pipe.options(logprobs=True).num_beams == 1
    assert pipe.generate(tokens=prompt, max_new_tokens=3, logprobs=True).choices[0].logprobs is not None
    assert pipe.score("abc").logprobs


def test_a_request_for_beams_drops_the_packages_sampling(open_tiny: Any) -> None:
    generation = {"defaults": {"temperature": 0.7, "top_p": 0.9}, "overrides": {"num_beams": True}}
    pipe, _ = open_tiny("kv", generation=generation)
    options = pipe.options(num_beams=2)
    assert (options.temperature, options.top_p, options.num_beams) == (0, 1.0, 2)
    assert pipe.options().temperature == 0.7

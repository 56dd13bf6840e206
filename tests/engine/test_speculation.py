"""Drafts change nothing: every answer is the one that the same request gets alone and without drafts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.engine.lane import Lane
from genai_pipeline.errors import GraphRunError
from genai_pipeline.scheduler.budget import Costs
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
    {"regex": "[a-z]{24}", "logprobs": True},
    {"choices": ["abcabcabc", "xyz"]},
    {"max_new_tokens": 3},
    {"max_new_tokens": 1},
    {"n": 3},
    {"dry_multiplier": 0.8, "logprobs": True},
    {"prompt_logprobs": 2, "text": "mn" * 20},
]
SEEDED: list[dict[str, Any]] = [
    {"mirostat": 2},
    {"xtc_probability": 0.5},
    {"top_k": 5, "min_p": 0.01},
    {"n": 2, "top_p": 0.9},
]


ALONE: dict[tuple[str, bool], list[Result]] = {}  # what requests get alone and without drafts, found out once
PAGE_BYTES = 16 * 2 * 2 * 2 * 8 * 4  # tokens, layers, parts, heads, head_dim, float32


def memory_for(pages: int, update: str) -> int:
    """Bytes to give so that running sequences have this many pages: a quarter goes to what is kept outside."""
    page = PAGE_BYTES * (2 if update == "append" else 1)  # two buffers
    return pages * page * 4 // 3 + page // 2


def is_idle(pipe: Any) -> bool:
    pipe.generate("x", max_new_tokens=1)
    scheduler = pipe._assembly.engine._scheduler
    pools = pipe._assembly.pools
    return all(
        pool.free_rows == pool.max_rows and pool.free_pages == pool.num_pages == scheduler.free_pages(loop)
        for loop, pool in pools.items()
    )


def requests(seeded: bool) -> list[dict[str, Any]]:
    made = []
    for index, options in enumerate([*REQUESTS, *(SEEDED if seeded else ())]):
        sampling = {"temperature": 0.8, "seed": index} if seeded else {"temperature": 0}
        made.append({"text": TEXTS[index % len(TEXTS)], "max_new_tokens": 40, **sampling, **options})
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
    if (update, seeded) not in ALONE:
        reference, package = open_tiny("kv", load={"prefix_cache": False}, **options)
        ALONE[update, seeded] = [collect_result(ask(reference, package, request)) for request in given]
    expected = ALONE[update, seeded]
    draft = {"layers": 1} if drafter == "package" else None
    pipe, package = open_tiny("kv", load={**LOAD, "draft": "lookup"}, draft=draft, **options)
    eager(pipe, foresight(truth_of(package, given, expected), wrong=0.2) if drafter == "foresight" else None)
    results = together(pipe, package, given)
    for request, result, right in zip(given, results, expected, strict=True):
        assert plain(result) == plain(right), request
    assert sum(result.usage.drafted_tokens or 0 for result in results) > 20
    assert results[1].usage.drafted_tokens is None


def foreseen(pipe: Any, package: Any, given: Sequence[dict[str, Any]]) -> tuple[list[Result], dict[Any, Any]]:
    """Results without drafts, and what a drafter has to know of them."""
    results = [collect_result(ask(pipe, package, {**request, "speculate": False})) for request in given]
    return results, truth_of(package, given, results)


def listening(metadata: dict[str, Any]) -> None:
    """Encoder and decoder in one loop: what the decoder hears is its own prompt, and its first run keeps that."""
    encode, loop = metadata["stages"]
    del encode["id"]
    loop["prompt"] = "prompt.tokens"
    loop["body"].insert(0, encode)
    metadata["stages"] = [loop]


@pytest.mark.parametrize("update", STATES)
def test_state_that_is_written_once_goes_beside_drafts(open_tiny: Any, eager: Any, foresight: Any, update: str) -> None:
    load = {**LOAD, "draft": "lookup"}
    pipe, package = open_tiny("cross", update=update, captured=True, edit=listening, load=load)
    given = [{"text": text, "temperature": 0, "max_new_tokens": 30, "n": 1 + (text == "bcd")} for text in TEXTS]
    expected, truth = foreseen(pipe, package, given)
    assert len(set(truth.values())) == len(TEXTS)
    for wrong in (0.1, 0.5):
        eager(pipe, foresight(truth, wrong=wrong))
        results = together(pipe, package, given)
        assert [plain(result) for result in results] == [plain(result) for result in expected]
        assert results[0].usage.accepted_tokens


@pytest.mark.parametrize("by", ["swap", "recompute"])
@pytest.mark.parametrize("update", STATES)
def test_preempted_while_drafts_are_out(
    open_tiny: Any, eager: Any, foresight: Any, update: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Costs, "swaps", property(lambda self: by == "swap"))
    load = {"max_batch": 6, "draft": "lookup", "memory": memory_for(19, update)}
    pipe, package = open_tiny("kv", update=update, load=load)
    given = [{"text": text, "temperature": 0, "max_new_tokens": 150, "ignore_eos": True} for text in TEXTS[:6]]
    expected, truth = foreseen(pipe, package, given)
    eager(pipe, foresight(truth, wrong=0.1))
    assert [plain(result) for result in together(pipe, package, given)] == [plain(result) for result in expected]
    assert pipe.stats()["preemptions"][by] > 0
    assert is_idle(pipe)


@pytest.mark.parametrize("update", STATES)
def test_a_draft_package_with_little_memory_changes_nothing_and_holds_nothing(
    open_tiny: Any, eager: Any, update: str
) -> None:
    load = {"max_batch": 4, "memory": 2 * memory_for(19, update)}
    pipe, package = open_tiny("kv", update=update, load=load, draft={})
    given = [
        {"text": text, "temperature": 0, "max_new_tokens": 100, "ignore_eos": True, "speculate": index != 2}
        for index, text in enumerate(TEXTS)
    ]
    expected, _ = foreseen(pipe, package, given)
    eager(pipe)
    leavers = [ask(pipe, package, request) for request in given]
    for stream in leavers[::2]:
        next(stream)
        stream.close()
    for stream in leavers[1::2]:
        stream.close()
    results = together(pipe, package, given)
    assert [plain(result) for result in results] == [plain(result) for result in expected]
    assert max(result.usage.accepted_tokens or 0 for result in results) > 20
    assert is_idle(pipe)
    (drafting,) = pipe._assembly.engine._drafting
    model = drafting._speculation._drafter
    assert model.num_rows == 0
    assert model._pool.free_pages == model._pool.num_pages


@pytest.mark.parametrize("update", STATES)
def test_requests_that_join_late_and_leave_early(open_tiny: Any, eager: Any, foresight: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, load={**LOAD, "draft": "lookup"})
    given = [{"text": text, "temperature": 0, "max_new_tokens": 60, "ignore_eos": True} for text in TEXTS[:5]]
    expected, truth = foreseen(pipe, package, given)
    eager(pipe, foresight(truth, wrong=0.15))
    first = ask(pipe, package, given[0])
    head = [next(first) for _ in range(7)]
    leaver = ask(pipe, package, given[1])
    left = [next(leaver).token for _ in range(11)]
    late = [ask(pipe, package, {**request, "speculate": index != 1}) for index, request in enumerate(given[2:])]
    leaver.close()
    assert left == list(expected[1].tokens[:11])
    assert collect_result([*head, *first]).choices == expected[0].choices
    assert [collect_result(stream).choices for stream in late] == [result.choices for result in expected[2:]]
    assert is_idle(pipe)


@pytest.mark.parametrize("update", STATES)
def test_a_row_at_the_end_of_its_buffer_beside_a_wide_one(
    open_tiny: Any, eager: Any, foresight: Any, update: str
) -> None:
    context = 128  # a whole page of memory for each stripe, so that the buffers have no room to spare
    pipe, package = open_tiny("kv", update=update, context_length=context, load={**LOAD, "draft": "lookup"})
    given = [
        {"text": "a" * 90, "temperature": 0, "ignore_eos": True, "speculate": False},
        {"text": "b" * 3, "temperature": 0, "ignore_eos": True},
        {"text": "c" * 80, "temperature": 0, "ignore_eos": True},
    ]
    expected, truth = foreseen(pipe, package, given)
    assert [len(result.tokens) for result in expected] == [38, 125, 48]
    for most in (3, 8):
        drafter = foresight(truth, wrong=0.8, most=most)
        eager(pipe, drafter)
        assert [r.choices for r in together(pipe, package, given)] == [r.choices for r in expected]
    assert pipe.stats()["runs"]["failed"] == 0


SCRIPT = ["O", " P", " Q", " R", " S", " T", " U", " V", " W", " X"]
STOPS: list[tuple[dict[str, Any], str, int]] = [  # options, text, completion tokens
    ({"stop": ["P Q"]}, "O ", 3),
    ({"stop": ["Q R S"]}, "O P ", 5),
    ({"stop": [" S", "X"]}, "O P Q R", 5),
    ({"stop": ["R S T U V W X Y", "V"]}, "O P Q R S T U ", 8),
    ({"stop_token_ids": [" T"]}, "O P Q R S", 6),
    ({"max_new_tokens": 4}, "O P Q R", 4),
    ({"max_new_tokens": 4, "stop": ["R"]}, "O P Q ", 4),
    ({"min_new_tokens": 11, "max_new_tokens": 11, "stop": ["absent"]}, "", 11),
    ({}, "".join(SCRIPT), 11),
]


@pytest.mark.parametrize("update", STATES)
def test_all_is_cut_at_one_place_inside_right_drafts(open_tiny: Any, eager: Any, foresight: Any, update: str) -> None:
    pipe, package = open_tiny("script", update=update, script=SCRIPT, load={"draft": "lookup"})
    prompt = [*package.vocabulary.encode("x" * 20), package.vocabulary.id("<|go|>")]
    eager(pipe, foresight({(tuple(prompt), 0): package.expected(prompt, 12)}, most=10))
    for options, text, completion in STOPS:
        stops = {"stop_token_ids": package.vocabulary.id_list(options.get("stop_token_ids", ()))}
        for logprobs in (False, True):
            given = {"tokens": prompt, "temperature": 0, "logprobs": logprobs, **options, **stops}
            right = pipe.generate(speculate=False, **given)
            before = pipe.stats()["tokens"]["generated"]
            events = list(pipe.stream(**given))
            result = collect_result(events)
            assert result.text == text or not text, options
            assert result.usage.completion_tokens == completion == right.usage.completion_tokens
            assert result.choices == right.choices
            # the first token comes of the prompt's own run; what was drafted and did not join does not count
            assert result.usage.accepted_tokens == result.usage.drafted_tokens
            assert completion - 2 <= (result.usage.accepted_tokens or 0) <= completion - 1
            assert pipe.stats()["tokens"]["generated"] == before + completion
            assert len(result.choices[0].logprobs or ()) == completion * logprobs
            assert [event.finish_reason for event in events if event.finish_reason] == [result.finish_reason]


@pytest.mark.parametrize("update", STATES)
def test_state_of_tokens_behind_a_stop_is_not_cached(open_tiny: Any, eager: Any, foresight: Any, update: str) -> None:
    pipe, package = open_tiny("kv", update=update, load={"draft": "lookup"})
    prompt = package.vocabulary.encode("p" * 20)
    answer = package.expected(prompt, 40)
    eager(pipe, foresight({(tuple(prompt), 0): answer}))
    for stop in range(9, 20):
        stops = package.vocabulary.decode(answer[stop : stop + 2])
        result = pipe.generate(tokens=prompt, temperature=0, ignore_eos=True, stop=[stops])
        kept = list(result.tokens)
        for other in (answer[len(kept) : len(kept) + 3], [30, 31, 32], []):
            longer = [*prompt, *kept, *other]
            following = pipe.generate(tokens=longer, temperature=0, ignore_eos=True, max_new_tokens=20)
            assert list(following.tokens) == package.expected(longer, 20)
    assert following.usage.cached_tokens


@pytest.mark.parametrize("prefix_cache", [False, True])
def test_sessions_go_on_from_what_was_said(open_tiny: Any, eager: Any, prefix_cache: bool) -> None:
    said: list[Any] = []
    for draft in ("off", "lookup"):
        load = {"draft": draft, "prefix_cache": prefix_cache}
        pipe, _ = open_tiny("kv", size=110, context_length=1024, load=load)
        if draft != "off":
            eager(pipe)
        with pipe.session() as session:
            mark = session.checkpoint()
            for turn, text in enumerate(("abababab", "and on", "abab once more")):
                options = {"temperature": 0, "max_new_tokens": 40, "stop": ["Q", "zz", "T"]}
                said.append((draft, session.chat(text, **options).choices))
                if turn == 0:
                    mark = session.checkpoint()
            session.rewind(to=mark)
            said.append((draft, session.chat("back", **options).choices, session.tokens))
    half = len(said) // 2
    assert [item[1:] for item in said[:half]] == [item[1:] for item in said[half:]]


def test_frequencies_with_drafts_match_the_distribution(open_tiny: Any, eager: Any) -> None:
    """10,000 draws, whose chi-square a right sampler exceeds once in a million (Wilson and Hilferty, z = 4.75)."""
    probabilities = {"a": 0.5, "b": 0.2, "c": 0.15, "d": 0.1, "e": 0.05}
    others = {"a": 0.1, "b": 0.4, "c": 0.3, "d": 0.1, "e": 0.1}
    freedom = len(probabilities) - 1
    part = 2 / (9 * freedom)
    bound = freedom * (1 - part + 4.75 * part**0.5) ** 3
    for draft in (None, {"probabilities": others, "context_length": 1024}):
        options = {"probabilities": probabilities, "context_length": 1024}
        pipe, package = open_tiny("flat", load={"draft": "lookup"}, draft=draft, **options)
        eager(pipe)
        ask_for = {"tokens": [package.vocabulary.id("a")], "max_new_tokens": 625, "n": 16, "seed": 3}
        result = pipe.generate(**ask_for)
        seen = Counter("".join(choice.text for choice in result.choices))
        assert sum((seen[t] - 10_000 * p) ** 2 / (10_000 * p) for t, p in probabilities.items()) < bound
        assert (result.usage.accepted_tokens or 0) > 2000
        alone = pipe.generate(**{**ask_for, "n": 2, "speculate": False})
        assert alone.choices == result.choices[:2]


def test_an_error_inside_drafts_ends_after_the_tokens_before_it(open_tiny: Any, eager: Any, foresight: Any) -> None:
    """Whether tokens come one by one or several at once, the same ones are out when the request fails."""
    pipe, package = open_tiny("kv", load={"draft": "lookup"})
    prompt = package.vocabulary.encode("abc")
    answer = package.expected(prompt, 12)
    wanted = {"tokens": prompt, "temperature": 0, "max_new_tokens": 12, "forced_token_ids": answer[:8]}
    regex = "".join(f"\\{c}" if not c.isalnum() else c for c in package.vocabulary.decode(answer[:5]))
    expected: list[int | None] = []
    for speculate in (False, True):
        eager(pipe, foresight({(tuple(prompt), 0): answer}))
        events = list(
            pipe.stream(**wanted, regex=f"{regex}[a-z]" if answer[5] < 10 else f"{regex}\u00e9", speculate=speculate)
        )
        assert events[-1].finish_reason == "error"
        tokens = [event.token for event in events if event.token is not None]
        expected = expected or tokens
        assert tokens == expected
    assert list(pipe.generate(tokens=prompt, temperature=0, max_new_tokens=12).tokens) == package.answer(prompt, 12)


def test_prompts_are_scored_as_without_drafts(open_tiny: Any, eager: Any, foresight: Any) -> None:
    pipe, package = open_tiny("kv", load={"draft": "lookup", "prefill_chunk": 16})
    given = [
        {"text": "abcdefghij" * 4, "temperature": 0, "max_new_tokens": 20, "prompt_logprobs": 1, "ignore_eos": True}
    ]
    expected, truth = foreseen(pipe, package, given)
    eager(pipe, foresight(truth, wrong=0.2))
    (result,) = together(pipe, package, given)
    assert plain(result) == plain(expected[0])
    assert len(result.prompt_logprobs or ()) == 39


@pytest.mark.parametrize("update", STATES)
def test_a_failed_run_with_drafts_is_repeated_row_by_row(
    open_tiny: Any, eager: Any, foresight: Any, update: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, package = open_tiny("kv", update=update, load={**LOAD, "draft": "lookup"})
    given = [
        {"text": text, "temperature": 0, "max_new_tokens": 24, "ignore_eos": True, **options}
        for text, options in (("abc", {"regex": "[a-z]*"}), ("de", {"regex": "[a-z]{24}"}), ("zz", {}), ("q" * 9, {}))
    ]
    expected, truth = foreseen(pipe, package, given)
    eager(pipe, foresight(truth, wrong=0.1))
    bad = package.vocabulary.id("z")
    run = Lane.run

    def failing(self: Lane, batch: Any) -> Any:
        if any(s.tokens[0] == bad and s.num_generated >= 5 for s in batch.sequences):
            raise GraphRunError("component 'decoder': no")
        return run(self, batch)

    monkeypatch.setattr(Lane, "run", failing)
    streams = [ask(pipe, package, request) for request in given]
    events = [list(stream) for stream in streams]
    assert events[2][-1].finish_reason == "error"
    for index in (0, 1, 3):
        assert collect_result(events[index]).choices == expected[index].choices
    assert is_idle(pipe)

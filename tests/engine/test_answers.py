"""Reasoning and tool calls through stream, generate and session, with and without drafts and constraints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import pytest

import genai_pipeline as gp
from genai_pipeline.engine.collect import collect_result
from genai_pipeline.errors import OptionError
from genai_pipeline.parsing.parts import join_calls
from genai_pipeline.testing import TinyPackage
from genai_pipeline.types import Choice, Event

CHAT = (
    "{% if tools %}<|im_start|>tools {{ tools | length }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{% for call in message.tool_calls %}{{ call.function.name }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome", "days": 2}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
ANSWER = f"<think>Rome, then.</think>\n\nI look.\n{CALL}\n{OTHER}"
WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
USER = [{"role": "user", "content": "hi"}]
BOTH = {"tools": {"format": "json_tagged"}, "reasoning": {"open": "<think>", "close": "</think>"}}
Load = Callable[..., tuple[gp.Pipeline, TinyPackage]]


@pytest.fixture
def load(open_tiny: Any, eager: Any, foresight: Any) -> Load:
    """``load(answer, drafts=True)``: a package that says the answer character by character."""

    def make(answer: str = ANSWER, *, drafts: bool = False, **options: Any) -> tuple[gp.Pipeline, TinyPackage]:
        metadata = {**BOTH, **options.pop("metadata", {})}
        pipe, package = open_tiny(
            "script",
            script=list(answer),
            chat_template=CHAT,
            context_length=1024,
            edit=lambda written: written.update(metadata),
            load={"max_batch": 4, "draft": "lookup" if drafts else "off"},
            **options,
        )
        if drafts:
            eager(pipe, foresight(package.vocabulary.id_list([*answer, "</s>"]), wrong=0.05, most=12))
        return pipe, package

    return make


def joined(events: Sequence[Event]) -> tuple[str, str, Any]:
    calls = join_calls(delta for event in events for delta in event.tool_calls)
    return "".join(e.text for e in events), "".join(e.reasoning for e in events), [(c.name, c.arguments) for c in calls]


def parts(choice: Choice) -> tuple[str, str, Any]:
    return choice.text, choice.reasoning, [(call.name, call.arguments) for call in choice.tool_calls]


ASKS: list[dict[str, Any]] = [
    {"tools": TOOLS},
    {"tools": TOOLS, "tool_choice": "auto", "logprobs": True},
    {"tools": TOOLS, "parallel_tool_calls": False},
    {"tools": TOOLS, "tool_choice": "none"},
    {"tools": TOOLS, "stop": ["look"]},
    {"tools": TOOLS, "stop": ["Rome"]},
    {"tools": TOOLS, "max_new_tokens": 70},
    {"tools": TOOLS, "max_new_tokens": 12},
    {},
    {"stop": ["tool_call"]},
    {"reasoning_budget": 4},
    {"reasoning_budget": 0},
    {"tools": TOOLS, "n": 2},
]


@pytest.mark.parametrize("drafts", [False, True])
def test_streams_join_to_the_result_in_any_company(load: Load, drafts: bool) -> None:
    plain, _ = load()
    pipe, _ = load(drafts=drafts)
    expected = [plain.generate(messages=USER, temperature=0, **{"max_new_tokens": 300, **ask}) for ask in ASKS]
    streams = [pipe.stream(messages=USER, temperature=0, **{"max_new_tokens": 300, **ask}) for ask in ASKS]
    for stream, right, ask in zip(streams, expected, ASKS, strict=True):
        events = list(stream)
        result = collect_result(events)
        for index, (choice, other) in enumerate(zip(result.choices, right.choices, strict=True)):
            own = [event for event in events if event.index == index]
            assert joined(own) == parts(choice) == parts(other), ask
            assert (choice.tokens, choice.finish_reason) == (other.tokens, other.finish_reason)
            assert [event.finish_reason for event in own if event.finish_reason] == [choice.finish_reason]
        assert result.usage.completion_tokens == right.usage.completion_tokens
    if drafts:
        assert result.usage.accepted_tokens


def test_each_ask_ends_as_it_should(load: Load) -> None:
    pipe, _ = load()
    results = [pipe.generate(messages=USER, temperature=0, **{"max_new_tokens": 300, **ask}) for ask in ASKS]
    weather, now = ("weather", '{"city": "Rome", "days": 2}'), ("now", "{}")
    thought, text = "Rome, then.", f"I look.\n{CALL}\n{OTHER}"
    found = [(*parts(result.choices[0]), result.finish_reason) for result in results]
    assert found[0] == found[1] == found[12] == ("I look.", thought, [weather, now], "tool_calls")
    assert found[2] == ("I look.", thought, [weather], "tool_calls")
    assert found[3] == found[8] == (text, thought, [], "stop")
    assert found[4] == ("I ", thought, [], "stop")
    assert found[5][1:] == ("", [], "stop")
    assert found[6] == (text[: 70 - len(ANSWER) + len(text)], thought, [], "length")
    assert found[7] == ("", "Rome,", [], "length")
    assert found[9] == ("I look.\n<", thought, [], "stop")
    assert found[10][1] == "Rome"
    assert found[11][1] == ""
    assert results[2].usage.completion_tokens == ANSWER.index("\n</tool_call>")  # the call is whole before its tag


@pytest.mark.parametrize("drafts", [False, True])
def test_sessions_keep_calls_and_go_on_with_their_results(load: Load, drafts: bool) -> None:
    pipe, _ = load(drafts=drafts)
    with pipe.session() as session:
        events = list(session.stream("hi", tools=TOOLS, temperature=0, max_new_tokens=300))
        assert events[-1].finish_reason == "tool_calls"
        asked, said = session.messages
        assert said["content"] == "I look."
        assert [call["function"]["name"] for call in said["tool_calls"]] == ["weather", "now"]
        assert "reasoning" not in said
        identity = said["tool_calls"][0]["id"]
        answer = session.chat("sunny", role="tool", tool_call_id=identity, tools=TOOLS, temperature=0)
        assert answer.finish_reason == "tool_calls"
        whole = [asked, said, {"role": "tool", "content": "sunny", "tool_call_id": identity}]
        alone = pipe.generate(messages=whole, tools=TOOLS, temperature=0)
        assert parts(alone.choices[0]) == parts(answer.choices[0])
        assert alone.usage.prompt_tokens == answer.usage.prompt_tokens
        first = session.chat("one", tools=TOOLS, parallel_tool_calls=False, temperature=0)
        assert (len(first.tool_calls), first.finish_reason) == (1, "tool_calls")


RANDOM = {"max_new_tokens": 500, "messages": USER}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
@pytest.mark.parametrize("parallel", [True, False])
def test_a_call_that_is_due_is_made_by_the_grammar_of_the_tools(open_tiny: Any, choice: Any, parallel: bool) -> None:
    pipe, _ = open_tiny(
        "bytes", text="x", peak=1.0, chat_template=CHAT, context_length=1024, edit=lambda written: written.update(BOTH)
    )
    names = set()
    for seed in range(4):
        ask = {**RANDOM, "seed": seed, "tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": parallel}
        result = pipe.generate(**ask)
        assert "x" not in result.text
        if result.finish_reason == "length":
            continue
        assert result.finish_reason == "tool_calls"
        assert parallel or len(result.tool_calls) == 1
        for call in result.tool_calls:
            names.add(call.name)
            arguments = json.loads(call.arguments)
            jsonschema.validate(arguments, WEATHER if call.name == "weather" else {"type": "object"})
        assert parts(collect_result(pipe.stream(**ask)).choices[0])[2] == parts(result.choices[0])[2]
    assert names
    assert choice == "required" or names == {"weather"}


def test_choice_none_needs_no_tools_and_gives_no_calls(load: Load) -> None:
    pipe, _ = load()
    texts = set()
    for given in ({}, {"tools": []}, {"tools": TOOLS}):
        result = pipe.generate(messages=USER, tool_choice="none", temperature=0, **given)
        assert (result.tool_calls, result.finish_reason) == ((), "stop")
        texts.add((result.text, result.usage.prompt_tokens))
        with pipe.session() as session:
            session.chat("hi", tool_choice="none", temperature=0, **given)
            assert "tool_calls" not in session.messages[-1]
    assert len(texts) == 1


def test_a_constraint_binds_the_answer_behind_its_reasoning(load: Load) -> None:
    for drafts in (False, True):
        pipe, _ = load("<think>Free words.</think>\n\nfree", drafts=drafts)
        for options, fits in (({"regex": r"\d{3}"}, r"\d{3}"), ({"choices": ["fre", "no"]}, "fre")):
            result = pipe.generate(messages=USER, temperature=0, max_new_tokens=100, **options)
            assert result.choices[0].reasoning == "Free words."
            assert re.fullmatch(fits, result.text)
            assert result.finish_reason == "stop"
            cut = pipe.generate(messages=USER, temperature=0, max_new_tokens=10, **options)
            assert (cut.text, cut.finish_reason) == ("", "length")
            bounded = pipe.generate(messages=USER, temperature=0, max_new_tokens=100, reasoning_budget=4, **options)
            assert bounded.choices[0].reasoning == "Free"
            assert re.fullmatch(fits, bounded.text)
            events = list(pipe.stream(messages=USER, temperature=0, max_new_tokens=100, **options))
            assert joined(events)[:2] == (result.text, "Free words.")


def test_a_call_or_a_constrained_answer(load: Load) -> None:
    pipe, _ = load(CALL)
    ask = {"messages": USER, "temperature": 0, "tools": TOOLS, "regex": r"[0-9]{3}"}
    result = pipe.generate(**ask)
    assert result.finish_reason == "tool_calls"
    assert [call.name for call in result.tool_calls] == ["weather"]
    pipe, _ = load("7 words")
    result = pipe.generate(**ask)
    assert (re.fullmatch("7[0-9]{2}", result.text) is not None, result.finish_reason) == (True, "stop")
    with pytest.raises(OptionError, match="tool_choice"):
        pipe.generate(**ask, tool_choice="required")


STOP_TEXT = "caf\u00e9 \U0001f389 stop here, \ud55c\uad6d and on"


@pytest.mark.parametrize("limit", [None, 3, 7, 8, 9, 10])
def test_no_character_of_a_stop_string_is_sent_when_a_step_gives_several_tokens(
    open_tiny: Any, eager: Any, foresight: Any, limit: int | None
) -> None:
    pipe, package = open_tiny("bytes", text=STOP_TEXT, load={"draft": "lookup"})
    prompt = [package.vocabulary.id("<|go|>")]
    eager(pipe, foresight({(tuple(prompt), 0): package.expected(prompt, 60)}, most=11))
    for stop in ("stop here", "\U0001f389", "\u00e9 ", "\uad6d", "and on", "absent"):
        ask = {"tokens": prompt, "temperature": 0, "stop": stop, "max_new_tokens": limit}
        plain = pipe.generate(speculate=False, **ask)
        events = list(pipe.stream(**ask))
        result = collect_result(events)
        assert result.choices == plain.choices
        assert result.usage.completion_tokens == plain.usage.completion_tokens
        assert "".join(event.text for event in events) == result.text
        if limit is None:
            assert result.text == STOP_TEXT.split(stop)[0]
            assert all("\ufffd" not in event.text for event in events)
        result.text.encode()
        forced = pipe.generate(choices=[STOP_TEXT], **ask)
        assert forced.choices[0].text == plain.text
        without_end = stop == "absent" and limit is None  # the constraint ends the answer by itself
        assert forced.usage.completion_tokens == plain.usage.completion_tokens - without_end

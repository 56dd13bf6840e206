"""Answers of running packages: reasoning and calls come apart from text, streamed and not; none means none."""

from __future__ import annotations

import json

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OptionError
from genai_pipeline.testing import write_package

CHAT = (
    "{% if tools %}tools:{{ tools | length }};{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ANSWER = '<think>Hm.</think>\n\nI look.\n<tool_call>\n{"name": "now", "arguments": {"x": [1, "a"]}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
USER = [{"role": "user", "content": "hi"}]


@pytest.fixture
def load(tmp_path):
    """``load(script, **metadata)``: a tiny package whose answer is the script, loaded."""
    pipes = []

    def make(script=tuple(ANSWER), template=CHAT, infill=None, **metadata):
        def edit(written):
            written.update(metadata)
            written["tokenizer"].update({} if infill is None else {"infill": infill})

        pipes.append(gp.load(write_package(tmp_path, "script", script=list(script), chat_template=template, edit=edit)))
        return pipes[-1]

    yield make
    for pipe in pipes:
        pipe.close()


BOTH = {"tools": {"format": "json_tagged"}, "reasoning": {"open": "<think>", "close": "</think>"}}


def test_reasoning_and_calls_come_apart_streamed_and_not(load):
    pipe = load(**BOTH)
    choice = pipe.generate(messages=USER, tools=TOOLS, temperature=0).choices[0]
    assert (choice.text, choice.reasoning, choice.finish_reason) == ("I look.", "Hm.", "tool_calls")
    assert [(call.name, json.loads(call.arguments)) for call in choice.tool_calls] == [("now", {"x": [1, "a"]})]
    events = list(pipe.stream(messages=USER, tools=TOOLS, temperature=0))
    assert "".join(event.text for event in events) == "I look."
    assert "".join(event.reasoning for event in events) == "Hm."
    deltas = [delta for event in events for delta in event.tool_calls]
    assert "".join(delta.arguments for delta in deltas) == choice.tool_calls[0].arguments
    assert len(deltas) > 5
    assert [event.finish_reason for event in events if event.finish_reason] == ["tool_calls"]


@pytest.mark.parametrize("given", [{}, {"tools": []}, {"tools": TOOLS}])
def test_with_choice_none_call_syntax_is_text_and_no_tool_is_shown(load, given):
    pipe = load(**BOTH)
    result = pipe.generate(messages=USER, tool_choice="none", temperature=0, **given)
    assert result.text == ANSWER.removeprefix("<think>Hm.</think>\n\n")
    assert (result.choices[0].tool_calls, result.finish_reason) == ((), "stop")
    assert result.usage.prompt_tokens == pipe.generate(messages=USER, temperature=0).usage.prompt_tokens
    shown = pipe.generate(messages=USER, tools=TOOLS, temperature=0)
    assert shown.usage.prompt_tokens > result.usage.prompt_tokens


def test_one_call_ends_the_answer_where_only_one_may_come(load):
    pipe = load(tuple(ANSWER + ANSWER[26:]), **BOTH)
    several = pipe.generate(messages=USER, tools=TOOLS, temperature=0).choices[0]
    assert len(several.tool_calls) == 2
    one = pipe.generate(messages=USER, tools=TOOLS, parallel_tool_calls=False, temperature=0).choices[0]
    assert one.tool_calls[0].arguments == several.tool_calls[0].arguments
    assert (len(one.tool_calls), one.text, one.finish_reason) == (1, "I look.", "tool_calls")
    assert len(one.tokens) < len(several.tokens)


def test_a_call_cut_by_the_length_is_text(load):
    pipe = load(**BOTH)
    choice = pipe.generate(messages=USER, tools=TOOLS, temperature=0, max_new_tokens=len(ANSWER) - 18).choices[0]
    assert (choice.tool_calls, choice.finish_reason) == ((), "length")
    assert choice.text == ANSWER[20 : len(ANSWER) - 18]


def test_a_prompt_may_open_the_reasoning(load):
    pipe = load(("<think>", "Hm.", "</think>", "Yes."), reasoning={"open": "<think>", "close": "</think>"})
    for prompt in ("<|go|>", "<|go|><think>"):
        answer = pipe.generate(prompt, raw=True, temperature=0).choices[0]
        assert (answer.text, answer.reasoning) == ("Yes.", "Hm.")


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": TOOLS}, "tools"),
        ({"reasoning_budget": 3}, "reasoning_budget"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
    ],
)
def test_what_a_package_does_not_have_is_refused(load, given, param):
    with pytest.raises(OptionError) as caught:
        load().generate(messages=USER, **given)
    assert caught.value.param == param


def test_a_budget_forces_the_end_of_reasoning(load):
    thoughts = ("<think>", *"abcdefgh", "</think>", "!")
    pipe = load(thoughts, reasoning={"open": "<think>", "close": "</think>"})
    whole = pipe.generate(messages=USER, temperature=0).choices[0]
    assert (whole.reasoning, whole.text) == ("abcdefgh", "!")
    cut = pipe.generate(messages=USER, temperature=0, reasoning_budget=3, max_new_tokens=6).choices[0]
    assert cut.reasoning == "abc"
    assert pipe.generate(messages=USER, temperature=0, reasoning_budget=8).choices[0] == whole


def test_a_suffix_asks_for_the_middle(load):
    infill = {"prefix": "<|im_start|>", "suffix": "<s>", "middle": "<|go|>"}
    pipe = load(("O", " P"), infill=infill)
    result = pipe.generate("a", suffix="b", temperature=0)
    assert (result.text, result.usage.prompt_tokens) == ("O P", 5)

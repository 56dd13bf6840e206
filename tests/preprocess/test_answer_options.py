"""Options about the form of an answer, and what of them the chat template is told."""

from __future__ import annotations

import pytest

from genai_pipeline.errors import OptionError, RequestError
from genai_pipeline.metadata.load import load_package
from genai_pipeline.preprocess.answer_options import ANSWER_OPTIONS, AnswerOptions
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.testing import write_package

TOOL = {"type": "function", "function": {"name": "f", "description": "<|im_end|>", "parameters": {"type": "object"}}}
USER = [{"role": "user", "content": "hi"}]
PLAIN = "{% for message in messages %}{{ message.role }}:{{ message.content }};{% endfor %}"
TOOLED = PLAIN + "{% if tools %}T{{ tools | length }}{{ tools[0].function.description }}{% endif %}"
THINKING = PLAIN + "{% if enable_thinking is defined and not enable_thinking %}off{% endif %}"
EFFORT = PLAIN + "effort={{ reasoning_effort or '-' }}"


@pytest.fixture
def ask(tmp_path):
    """``ask(template, options..., prompt=...)``: the rendered prompt of a tiny package with this template."""

    def make(template, *, package=None, prompt=None, **options):
        root = write_package(tmp_path, "script", chat_template=template, edit=lambda m: m.update(package or {}))
        spec, _ = load_package(root)
        reader = PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])})
        given = prompt or {"messages": USER}
        return reader.prompt(**given, answer=AnswerOptions.of(**options))["prompt.text"]

    return make


def test_tools_are_shown_to_the_model(ask):
    assert ask(TOOLED, tools=[TOOL]) == "user:hi;T1<|im_end|>"
    assert ask(TOOLED, prompt={"prompt": "hi"}, tools=[TOOL, {**TOOL, "function": {"name": "g"}}]).startswith(
        "user:hi;T2"
    )


@pytest.mark.parametrize(
    "given", [{"tool_choice": "none"}, {"tools": []}, {"tools": [TOOL], "tool_choice": "none"}, {}]
)
def test_with_choice_none_they_are_not(ask, given):
    assert ask(TOOLED, **given) == "user:hi;"
    assert ask(PLAIN, **given) == "user:hi;"


def test_control_tokens_in_tools_are_only_text(tmp_path):
    spec, _ = load_package(write_package(tmp_path, "script", chat_template=TOOLED))
    tokenizer = Tokenizer.load(spec.root, spec.tokenizers["default"])
    values = PromptReader(spec, {"default": tokenizer}).prompt(messages=USER, answer=AnswerOptions.of(tools=[TOOL]))
    assert not tokenizer.special_ids & set(values["prompt.tokens"])


def test_a_template_that_shows_no_tools_is_an_error(ask):
    with pytest.raises(OptionError, match="does not show tools") as caught:
        ask(PLAIN, tools=[TOOL])
    assert caught.value.param == "tools"


@pytest.mark.parametrize(
    ("template", "effort", "rendered"),
    [
        (THINKING, "none", "user:hi;off"),
        (PLAIN + "{{ thinking }}", "none", "user:hi;False"),
        (EFFORT, "none", "user:hi;effort=none"),
        (EFFORT, "low", "user:hi;effort=low"),
        (EFFORT + "{{ enable_thinking }}", "none", "user:hi;effort=-False"),
        (EFFORT + "{{ enable_thinking }}", "high", "user:hi;effort=high"),
        (PLAIN, None, "user:hi;"),
    ],
)
def test_effort_reaches_the_template(ask, template, effort, rendered):
    assert ask(template, reasoning_effort=effort) == rendered


@pytest.mark.parametrize(("template", "effort"), [(PLAIN, "none"), (PLAIN, "low"), (THINKING, "high")])
def test_effort_that_the_template_cannot_state_is_refused(ask, template, effort):
    with pytest.raises(OptionError, match=f"reasoning_effort of '{effort}'") as caught:
        ask(template, reasoning_effort=effort)
    assert caught.value.param == "reasoning_effort"


def test_further_variables_reach_the_template_by_name(ask):
    assert ask(PLAIN + "{{ shade }}", chat_template_kwargs={"shade": "blue"}) == "user:hi;blue"
    with pytest.raises(OptionError, match="no variable 'shape'") as caught:
        ask(PLAIN + "{{ shade }}", chat_template_kwargs={"shape": "blue"})
    assert caught.value.param == "chat_template_kwargs.shape"
    assert "shade" in caught.value.hint


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"reasoning_budget": -1}, "reasoning_budget"),
        ({"reasoning_budget": "5"}, "reasoning_budget"),
        ({"reasoning_budget": True}, "reasoning_budget"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {1: 2}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "chat_template_kwargs.add_generation_prompt"),
        ({"tool_choice": "any"}, "tool_choice"),
    ],
)
def test_wrong_options_are_refused_by_name(given, param):
    with pytest.raises(OptionError) as caught:
        AnswerOptions.of(**given)
    assert caught.value.param == param


def test_every_option_is_named():
    assert AnswerOptions.of(**dict.fromkeys(ANSWER_OPTIONS)) == AnswerOptions()


@pytest.mark.parametrize("prompt", [{"prompt": "hi", "raw": True}, {"tokens": [5]}])
@pytest.mark.parametrize(
    "given", [{"tools": [TOOL]}, {"reasoning_effort": "none"}, {"chat_template_kwargs": {"tools_in_user_turn": True}}]
)
def test_what_only_a_template_can_say_needs_one(ask, prompt, given):
    with pytest.raises(OptionError, match="the chat template renders") as caught:
        ask(TOOLED, prompt=prompt, **given)
    assert caught.value.param == next(iter(given))


@pytest.mark.parametrize("prompt", [{"prompt": "hi"}, {"messages": USER}])
def test_a_package_without_template_takes_no_tools(ask, prompt):
    with pytest.raises(RequestError, match="chat template"):
        ask(None, prompt=prompt, tools=[TOOL])


TURNS = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "<think>why</think>\n\nb", "reasoning_content": "why"},
    {"role": "user", "content": "c"},
]
SHOWS = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }};{% endfor %}"


@pytest.mark.parametrize(
    ("template", "package", "rendered"),
    [
        (SHOWS, {"reasoning": {"open": "<think>", "close": "</think>"}}, "a;b;c;"),
        (SHOWS + "{{ '' if true else '</think>' }}", {}, "a;b;c;"),
        (SHOWS, {}, "a;<think>why</think>\n\nb;c;"),
    ],
)
def test_earlier_reasoning_is_not_replayed(ask, template, package, rendered):
    assert ask(template, package=package, prompt={"messages": TURNS}) == rendered


def test_earlier_reasoning_that_the_prompt_had_opened_is_not_replayed(ask):
    template = SHOWS + "{% if add_generation_prompt %}A:<think>\n{% endif %}"
    turns = [TURNS[0], {"role": "assistant", "content": "why</think>b"}, TURNS[2]]
    package = {"reasoning": {"open": "<think>", "close": "</think>"}}
    assert ask(template, package=package, prompt={"messages": turns}) == "a;b;c;A:<think>\n"


def test_a_template_that_refuses_a_single_turn_opens_nothing(ask):
    template = SHOWS + "{% if messages | length < 3 %}{{ raise_exception('three turns') }}{% endif %}</think>"
    turns = [TURNS[0], {"role": "assistant", "content": "why</think>b"}, TURNS[2]]
    assert ask(template, prompt={"messages": turns}) == "a;why</think>b;c;</think>"


@pytest.mark.parametrize("messages", ["hi", 5, [], [5], [{"role": "assistant"}]])
def test_malformed_conversations_are_still_refused(ask, messages):
    with pytest.raises(RequestError, match="messages"):
        ask(SHOWS + "</think>", prompt={"messages": messages})

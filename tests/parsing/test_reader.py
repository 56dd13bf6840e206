"""What follows from a package and a request: parser or none, visible tokens, grammar, budget, refusals."""

from __future__ import annotations

import re

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.load import load_package
from genai_pipeline.parsing.parts import join_parts
from genai_pipeline.parsing.reader import AnswerReader
from genai_pipeline.preprocess.answer_options import AnswerOptions
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.detokenizer import make_detokenizer
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.testing import write_package

CALL = '<tool_call>{"name": "now"}</tool_call>'


@pytest.fixture
def reader(tmp_path):
    """``reader(template, **metadata)``: of a tiny package with these top-level keys."""

    def make(template="{{ messages[0].content }}", **metadata):
        package = write_package(tmp_path, "script", chat_template=template, edit=lambda m: m.update(metadata))
        spec, _ = load_package(package)
        tokenizer = Tokenizer.load(spec.root, spec.tokenizers["default"])
        return AnswerReader.of(spec, tokenizer, ChatTemplate.load(spec.root, spec.tokenizers["default"], tokenizer))

    return make


def joined(parser, text):
    return join_parts([*map(parser.push, text), parser.finish()])


def test_where_nothing_applies_there_is_no_parser(reader, tools):
    plain = reader()
    assert plain.parser(AnswerOptions(), "<think>") is None
    assert plain.visible_tokens(AnswerOptions()) == frozenset()
    with_tools = reader(tools={"format": "json_tagged"})
    for given in ({}, {"tools": tools, "tool_choice": "none"}, {"tools": []}, {"tool_choice": "none"}):
        answer = AnswerOptions.of(**given)
        with_tools.check(answer)
        assert with_tools.parser(answer, "") is None
        assert with_tools.call_rules(answer) is None


def test_reasoning_is_declared_or_found_in_the_template(reader):
    for made in (
        reader(reasoning={"open": "<r>", "close": "</r>"}),
        reader("{{ '<r>' }}", reasoning={"open": "<r>", "close": "</r>"}),
    ):
        assert joined(made.parser(AnswerOptions(), ""), "<r>a</r>b")[:2] == ("b", "a")
    found = reader("{{ messages[0].content.split('</think>')[-1] }}<think>\n")
    assert joined(found.parser(AnswerOptions(), "hello<think>\n"), "a</think>b")[:2] == ("b", "a")
    assert joined(found.parser(AnswerOptions(), "hello"), "a</think>b")[:2] == ("a</think>b", "")


def test_calls_stand_behind_reasoning_and_not_in_it(reader, tools):
    both = reader(reasoning={"open": "<think>", "close": "</think>"}, tools={"format": "json_tagged"})
    parser = both.parser(AnswerOptions.of(tools=tools), "")
    text, reasoning, calls = joined(parser, f"<think>I say {CALL}</think>\n\n{CALL}\n{CALL}")
    assert (text, reasoning) == ("", f"I say {CALL}")
    assert [call.name for call in calls] == ["now", "now"]
    assert parser.num_calls == 2
    assert not parser.over
    assert len({call.id for call in calls}) == 2


def test_without_parallel_calls_the_answer_is_over_after_one(reader, tools):
    parser = reader(tools={"format": "json_tagged"}).parser(
        AnswerOptions.of(tools=tools, parallel_tool_calls=False), ""
    )
    over = []
    for piece in (CALL[:20], CALL[20:], "x"):
        parser.push(piece)
        over.append(parser.over)
    assert over == [False, True, True]


@pytest.mark.parametrize(
    ("format", "shape"), [("json_tagged", r"call_[0-9a-f]{24}"), ("mistral_list", r"[A-Za-z0-9]{9}")]
)
def test_ids_have_the_shape_that_templates_take(reader, tools, format, shape):
    parser = reader(tools={"format": format}).parser(AnswerOptions.of(tools=tools), "")
    text = {"json_tagged": CALL * 3, "mistral_list": '[TOOL_CALLS] [{"name": "now"}, {"name": "now"}, {"name": "now"}]'}
    _, _, calls = joined(parser, text[format])
    assert len({call.id for call in calls}) == 3
    assert all(re.fullmatch(shape, call.id) for call in calls)


def test_tags_that_are_control_tokens_are_shown_to_the_parser(reader, tools):
    made = reader(reasoning={"open": "<|go|>", "close": "<|im_start|>"}, tools={"format": "pythonic"})
    tokenizer = made._tokenizer
    visible = made.visible_tokens(AnswerOptions.of(tools=tools))
    assert visible == {tokenizer.token_id("<|go|>"), tokenizer.token_id("<|im_start|>")}
    decoder = make_detokenizer(tokenizer, visible)
    parser = made.parser(AnswerOptions(), "")
    answer = tokenizer.encode_text("<|go|>ab<|im_start|>a<s>b", allow_special=True)
    assert join_parts([*(parser.push(decoder.push(token)) for token in answer), parser.finish()])[:2] == ("ab", "ab")
    budget = made.budget(AnswerOptions.of(reasoning_budget=0), made.parser(AnswerOptions(), "x<|go|>"))
    assert budget.forced == tokenizer.token_id("<|im_start|>")


def test_end_tokens_are_never_shown(reader):
    made = reader(reasoning={"open": "<|go|>", "close": "<|im_end|>"})
    assert made.visible_tokens(AnswerOptions()) == {made._tokenizer.token_id("<|go|>")}


def test_what_the_package_does_not_have_is_refused_by_name(reader, tools):
    plain = reader()
    plain.check(AnswerOptions())
    for given, param in (({"tools": tools}, "tools"), ({"reasoning_budget": 5}, "reasoning_budget")):
        with pytest.raises(OptionError) as caught:
            plain.check(AnswerOptions.of(**given))
        assert caught.value.param == param
        assert caught.value.hint
    reader(reasoning={"open": "<r>", "close": "</r>"}).check(AnswerOptions.of(reasoning_budget=5))


def test_a_budget_bounds_only_where_it_is_asked_for(reader):
    made = reader(reasoning={"open": "<r>", "close": "</r>"})
    assert made.budget(AnswerOptions(), made.parser(AnswerOptions(), "")) is None
    budget = made.budget(AnswerOptions.of(reasoning_budget=1), made.parser(AnswerOptions(), "<r>\n"))
    assert budget.forced is None
    budget.accept(inside=True)
    forced = []
    while budget.forced is not None:
        forced.append(budget.forced)
        budget.accept(inside=True)
    assert made._tokenizer.decode(forced) == "</r>"


def test_when_calls_are_bound_by_a_grammar(reader, tools):
    made = reader(tools={"format": "json_tagged"})
    strict = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in tools]
    assert made.call_rules(AnswerOptions.of(tools=tools)) is None
    assert made.call_rules(AnswerOptions.of(tools=tools, tool_choice="required")).start == "calls"
    assert made.call_rules(AnswerOptions.of(tools=strict)).start == "text_or_calls"
    assert "\ncall_tagged:" in made.call_grammar(AnswerOptions.of(tools=tools))
    assert made.call_grammar(AnswerOptions()) is None
    named = made.call_rules(
        AnswerOptions.of(tools=strict, tool_choice={"type": "function", "function": {"name": "now"}})
    )
    assert named.grammar.startswith("start: calls\n")
    assert "get_weather" not in named.grammar

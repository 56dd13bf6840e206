"""Grammars of calls: what they allow is what the parsers read, and it fits the tools' schemas."""

# ruff: noqa: E501

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from genai_pipeline.constraints.compiler import ConstraintCompiler
from genai_pipeline.constraints.rules import combined_spec
from genai_pipeline.constraints.spec import Preamble, grammar_spec, read_constraint
from genai_pipeline.errors import ConstraintError, OptionError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.parsing.reader import CallRules
from genai_pipeline.parsing.registry import FORMATS
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.preprocess.tools import read_tool_use
from genai_pipeline.problems import Location
from genai_pipeline.testing.vocabulary import byte_level

SHORT = {"type": "string", "maxLength": 4}
TRIP = {
    "type": "object",
    "properties": {
        "city": SHORT,
        "days": {"type": "integer", "minimum": 0, "maximum": 30},
        "metric": {"type": "boolean"},
        "kind": {"enum": ["sun", "rain\n", "<b>"]},
        "at": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 1, "maxItems": 2},
        "more": {"$ref": "#/$defs/pair"},
    },
    "required": ["city", "more"],
    "additionalProperties": False,
    "$defs": {
        "pair": {
            "type": "object",
            "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    },
}
EMPTY = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS = {
    "plan_trip": TRIP,
    "now": EMPTY,
    "now_and_then": {"type": "object", "properties": {"x": SHORT}, "additionalProperties": False},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """One token for every byte."""
    folder = tmp_path_factory.mktemp("bytes")
    byte_level().write(folder / "tokenizer.json")
    return Tokenizer.load(folder, TokenizerSpec(Location("x.yaml"), "default", "tokenizer.json", eos=("</s>",)))


@pytest.fixture(scope="module")
def compiler(tokenizer):
    return ConstraintCompiler(tokenizer, tokenizer.vocab_size, tokenizer.end_ids)


def state_of(compiler, tokenizer, format: str, tools=TOOLS, **options: Any):
    use = read_tool_use(tools, **options)
    assert use is not None
    rules = FORMATS[format].rules(use, tokenizer.control_tokens)
    start = "calls" if use.mode == "required" else "text_or_calls"
    return compiler.compile(grammar_spec(CallRules(rules, start).grammar, "tools")).start()


def may_end(state, tokenizer) -> bool:
    row = np.zeros((tokenizer.vocab_size + 31) // 32, np.int32)
    state.fill(row)
    end = tokenizer.eos_id
    return bool((int(row[end // 32]) >> (end % 32)) & 1)


def allows(state, tokenizer, text: str) -> bool:
    """Whether the whole text may be written and be the answer."""
    try:
        for token in tokenizer.encode_text(text, allow_special=False):
            state.accept(token)
        return may_end(state, tokenizer)
    except Exception as error:
        if type(error).__name__ != "ConstraintRunError":
            raise
        return False


MORE = '"more": {"a": true}'
ALLOWED = {
    "json_tagged": [
        f'<tool_call>\n{{"name": "plan_trip", "arguments": {{"city": "Ulm", "days": 3, {MORE}}}}}\n</tool_call>',
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n<tool_call>{"name": "now_and_then", "arguments": {"x":"é"}}</tool_call>',
    ],
    "mistral_list": [
        '[TOOL_CALLS] [{"name": "now", "arguments": {}}]',
        f'[TOOL_CALLS][{{"name": "plan_trip", "arguments": {{"city": "Ulm", {MORE}}}}}, {{"name": "now", "arguments": {{}}}}]',
    ],
    "llama_python_tag": [
        '{"name": "now", "parameters": {}}',
        f'<|python_tag|>{{"name": "plan_trip", "parameters": {{"city": "Ulm", {MORE}}}}}; {{"name": "now", "parameters": {{}}}}',
    ],
    "pythonic": ['[now()]', '[plan_trip(city="Ulm", metric=False, more={"a": true}), now_and_then(x="")]'],
    "xml_tagged": [
        "<function=now>\n</function>",
        "<tool_call>\n<function=plan_trip>\n<parameter=city>\n<b>U\n</parameter>\n<parameter=kind>\nsun\n</parameter>\n"
        '<parameter=more>\n{"a": true}\n</parameter>\n</function>\n</tool_call>',
    ],
}  # fmt: skip
WRONG_VALUE = {
    "json_tagged": '<tool_call>{"name": "plan_trip", "arguments": {"city": "Ulm", "days": 31, '
    + MORE
    + "}}</tool_call>",
    "mistral_list": '[TOOL_CALLS] [{"name": "plan_trip", "arguments": {"city": 5, ' + MORE + "}}]",
    "llama_python_tag": '{"name": "plan_trip", "parameters": {"town": "Ulm", ' + MORE + "}}",
    "pythonic": '[plan_trip(city="Ulm")]',
    "xml_tagged": "<function=plan_trip>\n<parameter=city>\nUlm\n</parameter>\n<parameter=days>\nmany\n</parameter>\n</function>",
}


@pytest.mark.parametrize("format", FORMATS)
def test_when_a_call_is_due_only_well_formed_calls_may_be_written(compiler, tokenizer, parse, format):
    for text in ALLOWED[format]:
        assert allows(state_of(compiler, tokenizer, format, tool_choice="required"), tokenizer, text)
        left, calls = parse(format, [text], tools=TOOLS)
        assert left == ""
        for name, arguments in calls:
            Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))
    for text in ("", "Hello", WRONG_VALUE[format], ALLOWED[format][0].replace("now", "nobody")[:-1]):
        assert not allows(state_of(compiler, tokenizer, format, tool_choice="required"), tokenizer, text)


@pytest.mark.parametrize("format", FORMATS)
def test_strict_tools_leave_text_free_and_bind_calls(compiler, tokenizer, format):
    for text in ("", "Hello (x) = 1", *ALLOWED[format]):
        assert allows(state_of(compiler, tokenizer, format), tokenizer, text)
    assert not allows(state_of(compiler, tokenizer, format), tokenizer, WRONG_VALUE[format])


@pytest.mark.parametrize("format", FORMATS)
def test_a_named_tool_is_the_only_one_and_one_call_is_one_call(compiler, tokenizer, format):
    named = {"tool_choice": {"type": "function", "function": {"name": "now"}}, "parallel_tool_calls": False}
    one = ALLOWED[format][0].replace("plan_trip", "now_and_then")
    assert allows(state_of(compiler, tokenizer, format, **named), tokenizer, one) is ("now_and_then" not in one)
    two = next(text for text in ALLOWED[format][::-1])
    assert not allows(state_of(compiler, tokenizer, format, **named), tokenizer, two)


@pytest.mark.parametrize("format", FORMATS)
def test_whatever_the_grammar_lets_a_model_write_is_read_and_fits_the_schema(compiler, tokenizer, parse, format):
    chooser = random.Random(7)
    for choice, parallel in itertools.product(
        ("required", {"type": "function", "function": {"name": "plan_trip"}}), (False, True)
    ):
        for _ in range(6):
            state = state_of(compiler, tokenizer, format, tool_choice=choice, parallel_tool_calls=parallel)
            text = walk(state, tokenizer, chooser)
            left, calls = parse(format, list(text), tools=TOOLS, tool_choice=choice)
            assert left == "", text
            assert calls
            assert parallel or len(calls) == 1
            for name, arguments in calls:
                Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))


def walk(state, tokenizer, chooser: random.Random) -> str:
    """A text written at random under a grammar, mostly printable, ended as soon as it may be."""
    row = np.zeros((tokenizer.vocab_size + 31) // 32, np.int32)
    tokens: list[int] = []
    while True:
        assert len(tokens) < 5000
        state.fill(row)
        allowed = [i for i in range(tokenizer.vocab_size) if (int(row[i // 32]) >> (i % 32)) & 1]
        if tokenizer.eos_id in allowed and (state.finished or chooser.random() < 0.7):
            return tokenizer.decode(tokens)
        allowed = [token for token in allowed if token != tokenizer.eos_id]
        plain = [token for token in allowed if tokenizer.decode([token]) not in (" ", "\n", "\t", "\r")]
        token = chooser.choice(plain or allowed)
        state.accept(token)
        tokens.append(token)


def test_what_a_schema_cannot_be_held_to_is_refused_by_keyword(compiler, tokenizer):
    bad = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"x": {"type": "string", "pattern": "^a"}}}},
        }
    ]
    with pytest.raises(OptionError, match=r"'pattern' \(of f\.x\)"):
        state_of(compiler, tokenizer, "xml_tagged", bad, tool_choice="required")
    worse = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"x": {"type": "string", "not": {"const": "a"}}}}},
        }
    ]
    with pytest.raises(ConstraintError, match="not") as caught:
        state_of(compiler, tokenizer, "json_tagged", worse, tool_choice="required")
    assert caught.value.param == "tools"


def test_control_tokens_are_one_token_in_a_grammar(compiler, tokenizer):
    use = read_tool_use(TOOLS, "required")
    assert use is not None
    rules = FORMATS["json_tagged"].rules(use, {"<tool_call>": tokenizer.token_id("<|go|>")})
    state = compiler.compile(grammar_spec(CallRules(rules, "calls").grammar, "tools")).start()
    state.accept(tokenizer.token_id("<|go|>"))
    assert allows(state, tokenizer, '{"name": "now", "arguments": {}}</tool_call>')


@pytest.mark.parametrize("format", FORMATS)
def test_an_answer_with_a_form_of_its_own_may_be_calls_instead(compiler, tokenizer, format):
    use = read_tool_use(TOOLS)
    assert use is not None
    rules = CallRules(FORMATS[format].rules(use, {}), "answer | calls")
    answer = read_constraint({"choices": ["yes", "no"]})
    compiled = compiler.compile(combined_spec(rules.grammar, "tools", answer))
    for text in ("yes", "no", *ALLOWED[format]):
        assert allows(compiled.start(), tokenizer, text)
    for text in ("", "maybe", WRONG_VALUE[format]):
        assert not allows(compiled.start(), tokenizer, text)


@pytest.mark.parametrize("format", FORMATS)
def test_calls_that_are_due_come_behind_the_reasoning(compiler, tokenizer, format):
    use = read_tool_use(TOOLS, "required")
    assert use is not None
    spec = grammar_spec(CallRules(FORMATS[format].rules(use, {}), "calls").grammar, "tools")
    call = ALLOWED[format][-1]
    optional = compiler.compile(spec.after(Preamble("<think>", "</think>", mandatory=False)))
    assert allows(optional.start(), tokenizer, f"<think>Hm {call}</think>\n\n{call}")
    assert allows(optional.start(), tokenizer, call)
    assert not allows(optional.start(), tokenizer, "<think>Hm</think>Hello")
    mandatory = compiler.compile(spec.after(Preamble("<think>", "</think>", mandatory=True)))
    assert allows(mandatory.start(), tokenizer, f"Hm</think>{call}")
    assert not allows(mandatory.start(), tokenizer, call)

"""Choices and grammars give exactly their texts, after reasoning, too; ends come exactly where an answer may end."""

from __future__ import annotations

import json
import re

import pytest

from genai_pipeline.constraints.rules import answer_rules, combined_spec
from genai_pipeline.constraints.spec import Preamble, read_constraint
from genai_pipeline.errors import ConstraintError, ConstraintRunError


def outcomes(bench, constraint, runs=60, most=80):
    found = set()
    for seed in range(runs):
        tokens, ended = bench.run(constraint.start(), seed, most)
        if ended:
            found.add(bench.text(tokens))
    return found


def test_choices_are_all_and_nothing_else(bench, word_bench):
    choices = ["yes", "yesterday", "no", "naïve ☕", 'a "quoted" \\ one', "line\nend", "yes "]
    found = outcomes(bench, bench.compiler.compile(bench.spec({"choices": choices})))
    assert len(found) > 2
    assert found <= set(choices)
    assert all(bench.accepts({"choices": choices}, text) for text in choices)
    plain = ["yes", "yesterday", "hello world"]
    assert outcomes(word_bench, word_bench.compiler.compile(word_bench.spec({"choices": plain})), 200) == set(plain)


def test_an_end_may_come_exactly_where_an_answer_is_whole(bench):
    ends = bench.tokenizer.end_ids
    state = bench.start({"choices": ["ab", "abcd"]})
    whole = []
    for token in bench.tokenizer.encode_text("abcd", allow_special=False):
        whole.append(bool(ends & bench.allowed(state)))
        state.accept(token)
    assert whole == [False, False, True, False]
    assert bench.allowed(state) == ends
    assert state.finished


def test_a_grammar_gives_its_language(bench):
    text = 'start: "<" item ("," item)* ">"\nitem: WORD | start\nWORD: /[a-c]{1,2}/\n'
    constraint = bench.compiler.compile(bench.spec({"grammar": text}))
    found = outcomes(bench, constraint)
    assert len(found) > 10
    for answer in found:
        inner = answer
        while (shorter := re.sub(r"<(?:[a-c]{1,2}|#)(?:,(?:[a-c]{1,2}|#))*>", "#", inner)) != inner:
            inner = shorter
        assert inner == "#"


def test_schemas_in_a_grammar_are_enforced(bench):
    text = 'start: "x=" %json {"type": "integer", "minimum": 3, "maximum": 5} ";"'
    found = outcomes(bench, bench.compiler.compile(bench.spec({"grammar": text})))
    assert found == {"x=3;", "x=4;", "x=5;"}


def test_control_tokens_of_a_grammar(bench):
    text = 'start: "a" <|go|> "b"'
    state = bench.start({"grammar": text})
    go = bench.tokenizer.control_tokens["<|go|>"]
    (a,) = bench.allowed(state)
    state.accept(a)
    assert bench.allowed(state) == {go}
    state.accept(go)
    assert len(bench.allowed(state)) == 1


def test_any_token_of_a_grammar_is_no_end(bench):
    allowed = bench.allowed(bench.start({"grammar": 'start: <[*]> "a"'}))
    assert not allowed & bench.tokenizer.end_ids
    assert max(allowed) <= bench.tokenizer.highest_id


def test_text_never_allows_control_tokens_or_ids_past_the_tokenizer(bench):
    state = bench.start({"regex": "(?:.|\\n)*"})
    allowed = bench.allowed(state)
    assert allowed & bench.tokenizer.special_ids == bench.tokenizer.end_ids
    assert max(allowed) <= bench.tokenizer.highest_id
    assert bench.width > bench.tokenizer.highest_id + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('foo: "a"', "start"),
        ("start: b", "unknown name"),
        ("start: /[/", "regex"),
        ('start: "a', "lexer error"),
        ("start: <|nope|>", "unknown special token"),
        ("start: " + "(" * 400 + '"a"' + ")" * 400, "nested"),
    ],
)
def test_a_bad_grammar_is_refused_by_its_own_words(bench, text, words):
    for preamble in (None, Preamble("<think>", "</think>", mandatory=False)):
        with pytest.raises(ConstraintError) as caught:
            bench.start({"grammar": text}, preamble)
        assert words in caught.value.message
        assert caught.value.param == "grammar"


TEXT_TAGS = Preamble("<think>", "</think>", mandatory=False)
TOKEN_TAGS = Preamble("<|go|>", "<s>", mandatory=False)

ANSWERS = [
    ({"choices": ["yes", "no"]}, "no", "maybe"),
    ({"regex": "[a-z<>/ ]{3,}"}, "abc", "ab"),
    ({"grammar": 'start: "a" "b"+'}, "abb", "a"),
    ({"response_format": {"type": "json_object"}}, '{"a": 1}', "[1]"),
]


@pytest.mark.parametrize(("options", "good", "bad"), ANSWERS)
@pytest.mark.parametrize("tags", [TEXT_TAGS, TOKEN_TAGS], ids=["text", "token"])
def test_reasoning_is_free_and_the_answer_is_bound(bench, options, good, bad, tags):
    mandatory = Preamble(tags.open, tags.close, mandatory=True)
    for thought in ("", "I think </thi so.\n\n{", "日本 ☕"):
        for gap in ("", "\n", "\n\n"):
            assert bench.accepts(options, f"{thought}{tags.close}{gap}{good}", mandatory)
            assert bench.accepts(options, f"{tags.open}{thought}{tags.close}{gap}{good}", tags)
        assert not bench.accepts(options, f"{thought}{tags.close}{bad}", mandatory)
        assert not bench.accepts(options, f"{tags.open}{thought}{tags.close}{bad}", tags)
        assert not bench.accepts(options, f"{tags.open}{thought}", tags)
        assert not bench.accepts(options, thought, mandatory)
    assert bench.accepts(options, good, tags)
    assert not bench.accepts(options, bad, tags)
    assert not bench.accepts(options, good, mandatory)


def test_a_free_regex_is_not_mistaken_for_reasoning(bench):
    """What begins like reasoning is reasoning, though the regex would take it, too."""
    options = {"regex": "(?:.|\\n){1,30}"}
    assert not bench.accepts(options, "<think>no end", TEXT_TAGS)
    assert bench.accepts(options, "<think>x</think>the answer", TEXT_TAGS)
    assert bench.accepts(options, "<thin> air", TEXT_TAGS)


def test_rules_combine_under_one_start(bench):
    answer = read_constraint(
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}}
    )
    assert answer is not None
    one = '{"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"]}'
    rules = f'start: answer | calls\ncalls: "call " %json {one}'
    constraint = bench.compiler.compile(combined_spec(rules, "tools", answer))
    found = outcomes(bench, constraint)
    calls = {text for text in found if text.startswith("call ")}
    assert calls
    assert calls < found
    assert all(json.loads(text.removeprefix("call "))["x"] == 1 for text in calls)
    assert all(isinstance(json.loads(text), int) for text in found - calls)


def test_the_schema_of_a_tool_is_refused_in_the_name_of_tools():
    with pytest.raises(ConstraintError) as caught:
        combined_spec('start: %json {"type": "object", "properties": {"a": {"not": {}}}}', "tools")
    assert (caught.value.param, caught.value.pointer) == ("tools", "/properties/a/not")


@pytest.mark.parametrize(("options", "good", "bad"), ANSWERS)
def test_answer_rules_stand_alone(bench, options, good, bad):
    spec = bench.spec(options)
    text = f"start: answer\n{answer_rules(spec)}"
    matcher, fault = bench.compiler.compile(spec).vocabulary.matcher(text)
    assert fault == ""
    for wanted, answer in ((True, good), (False, bad)):
        copy = matcher.copy()
        tokens = bench.tokenizer.encode_text(answer, allow_special=False)
        assert (all(copy.consume(token) for token in tokens) and copy.accepts_end()) is wanted


def test_an_empty_answer_where_the_regex_allows_it(bench):
    state = bench.start({"regex": "a*"})
    assert bench.tokenizer.end_ids < bench.allowed(state)


def test_a_vocabulary_that_lacks_what_must_follow_fails_by_name(word_bench):
    state = word_bench.start({"choices": ["aé"]})
    (token,) = word_bench.allowed(state)
    state.accept(token)
    with pytest.raises(ConstraintRunError, match="has no token for what must follow"):
        word_bench.allowed(state)


def test_json_with_tokens_of_several_characters(word_bench):
    options = {
        "response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [{"name": 1}, {"name": 2}]}}}
    }
    found = outcomes(word_bench, word_bench.compiler.compile(word_bench.spec(options)), 40)
    assert {json.dumps(json.loads(text)) for text in found} == {'{"name": 1}', '{"name": 2}'}

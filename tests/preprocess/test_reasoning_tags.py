"""Where reasoning tags come from, and that replayed conversations leave earlier reasoning out."""

from __future__ import annotations

import pytest

from genai_pipeline.preprocess.reasoning_tags import ReasoningTags, find_reasoning, without_earlier_reasoning

TAGS = ReasoningTags("<think>", "</think>")
USER = {"role": "user", "content": "?"}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


@pytest.mark.parametrize(
    ("declared", "template", "tags"),
    [
        ({"open": "<r>", "close": "</r>"}, "x <think> y </think>", ReasoningTags("<r>", "</r>")),
        (None, "{{ content.split('</think>')[-1] }}", TAGS),
        (None, "<think>\n\n</think>", TAGS),
        (None, "[THINK]{{ x }}[/THINK]", ReasoningTags("[THINK]", "[/THINK]")),
        (None, "no reasoning here", None),
    ],
)
def test_tags_are_declared_or_found_in_the_template(declared, template, tags):
    assert find_reasoning(declared, (template,)) == tags


def test_without_a_template_there_are_no_tags():
    assert find_reasoning(None, ()) is None


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ("<think>\nHm.\n</think>\n\nFour.", "Four."),
        ("\n<think></think>Four.", "Four."),
        ("Four.", "Four."),
        ("Four <think>x</think>.", "Four <think>x</think>."),
        ("<think>cut off", ""),
        ([{"type": "text", "text": "<think>a</think>b"}, {"type": "text", "text": "c"}],
         [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]),
    ],
)  # fmt: skip
def test_earlier_answers_come_without_their_reasoning(content, left):
    given = [USER, assistant(content, reasoning_content="a", reasoning="b", thinking="c"), USER]
    assert without_earlier_reasoning(given, TAGS) == [USER, assistant(left), USER]
    assert given[1]["reasoning_content"] == "a"


def test_where_the_prompt_opens_the_reasoning_the_close_alone_ends_it():
    given = [USER, assistant("Hm.</think>\n\nFour."), USER]
    assert without_earlier_reasoning(given, TAGS, opened=True)[1] == assistant("Four.")
    assert without_earlier_reasoning(given, TAGS)[1] == given[1]
    plain = [USER, assistant("Four."), USER]
    assert without_earlier_reasoning(plain, TAGS, opened=True) == plain


def test_the_answer_that_is_going_on_keeps_its_reasoning_for_the_template():
    call = assistant("<think>a</think>", tool_calls=[], reasoning_content="a")
    given = [USER, assistant("<think>x</think>y"), USER, call, {"role": "tool", "content": "5"}]
    assert without_earlier_reasoning(given, TAGS) == [USER, assistant("y"), USER, call, given[4]]


def test_without_tags_only_the_fields_go():
    given = [USER, assistant("<think>x</think>y", reasoning_content="x"), USER]
    assert without_earlier_reasoning(given, None) == [USER, assistant("<think>x</think>y"), USER]


def test_what_is_no_conversation_is_left_to_be_refused():
    assert without_earlier_reasoning([5, {}], TAGS) == [5, {}]  # type: ignore[list-item]

"""Reasoning is told apart from the answer, whole and in pieces, and its bound forces its end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.parsing.answer import AnswerParser
from genai_pipeline.parsing.budget import ReasoningBudget
from genai_pipeline.parsing.parts import join_parts
from genai_pipeline.parsing.reasoning import ReasoningSplitter
from genai_pipeline.preprocess.reasoning_tags import ReasoningTags

TAGS = ReasoningTags("<think>", "</think>")
PIECES = settings(max_examples=200, deadline=None)


def split(pieces, *, opened=False):
    """Text and reasoning of an answer in pieces."""
    parser = AnswerParser(ReasoningSplitter(TAGS, opened=opened), None)
    text, reasoning, calls = join_parts([*map(parser.push, pieces), parser.finish()])
    assert calls == ()
    return text, reasoning


CASES = [
    ("<think>\nHm.\n</think>\n\nFour.", False, "Four.", "\nHm.\n"),
    ("Hm.</think>\n\n\nFour.\n", True, "\nFour.\n", "Hm."),
    ("Hm.</think>\n", True, "", "Hm."),
    ("Hm.</think>Four.", True, "Four.", "Hm."),
    ("<think>never closed </thin", False, "", "never closed </thin"),
    ("still going <", True, "", "still going <"),
    ("Four.", False, "Four.", ""),
    (" \n<think>a</think>b", False, "b", "a"),
    ("<think></think>b", False, "b", ""),
    ("</think>b", True, "b", ""),
    ("About <think> and </think>.", False, "About <think> and </think>.", ""),
    ("a</think>b</think><think>c", True, "b</think><think>c", "a"),
    ("<think>a<think>b</think>c", False, "c", "a<think>b"),
    ("<thin", False, "<thin", ""),
    ("<think", False, "<think", ""),
    ("<thinking>", False, "<thinking>", ""),
    ("  ", False, "  ", ""),
    ("", False, "", ""),
    ("", True, "", ""),
    ("a</</think>b", True, "b", "a</"),
]


@pytest.mark.parametrize(("answer", "opened", "text", "reasoning"), CASES)
def test_answers_are_split_however_they_are_cut(answer, opened, text, reasoning):
    for size in range(1, max(2, len(answer) + 1)):
        pieces = [answer[i : i + size] for i in range(0, len(answer), size)]
        assert split(pieces, opened=opened) == (text, reasoning)


scraps = st.lists(st.sampled_from(("<think>", "</think>", "<thi", "</", ">", "a", " ", "\n", "ü")), max_size=10)


@PIECES
@given(scraps=scraps, opened=st.booleans())
def test_nothing_is_lost(scraps, opened):
    answer = "".join(scraps)
    text, reasoning = split([answer], opened=opened)
    assert split(list(answer), opened=opened) == split(scraps, opened=opened) == (text, reasoning)
    closed = [f"{reasoning}</think>{ends}{text}" for ends in ("", "\n", "\n\n")]
    rebuilt = {text + reasoning, *closed, f"<think>{reasoning}", *(f"<think>{each}" for each in closed)}
    assert answer in rebuilt or answer.lstrip(" \n") in rebuilt


def test_whether_the_answer_is_inside_reasoning_is_known_after_each_piece():
    parser = AnswerParser(ReasoningSplitter(TAGS, opened=False), None)
    states = []
    for piece in ("<thi", "nk>", "a", "</think", ">", "b"):
        parser.push(piece)
        states.append(parser.in_reasoning)
    assert states == [False, True, True, True, False, False]
    assert AnswerParser(ReasoningSplitter(TAGS, opened=True), None).in_reasoning


@pytest.mark.parametrize(
    ("prompt", "opened"),
    [
        ("<|im_start|>assistant\n", False),
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", False),
        ("<think>", True),
        ("", False),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt, opened):
    assert TAGS.opened_by(prompt) is opened


def run(budget: ReasoningBudget, *, opened: bool, spelled: list[str], steps: int) -> list[str]:
    """Tokens of an answer that would reason on for ever, under a budget; ``spelled``: texts of the closing tokens."""
    parser = AnswerParser(ReasoningSplitter(TAGS, opened=opened), None)
    chosen = []
    for step in range(steps):
        forced = budget.forced
        token = spelled[forced] if forced is not None else "<think>" if step == 0 and not opened else "x"
        parser.push(token)
        budget.accept(inside=parser.in_reasoning)
        chosen.append(token)
    return chosen


@pytest.mark.parametrize("limit", [0, 1, 3])
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("spelled", [["</think>"], ["</", "think", ">"]])
def test_reasoning_ends_when_its_budget_is_used_up(limit, opened, spelled):
    budget = ReasoningBudget(limit, tuple(range(len(spelled))), inside=opened)
    chosen = run(budget, opened=opened, spelled=spelled, steps=12)
    head = [] if opened else ["<think>"]
    expected = [*head, *["x"] * limit, *spelled]
    assert chosen == (expected + ["x"] * 12)[:12]
    assert budget.forced is None


def test_reasoning_that_ends_by_itself_is_not_forced_and_the_answer_is_not_bounded():
    budget = ReasoningBudget(3, (0,), inside=True)
    parser = AnswerParser(ReasoningSplitter(TAGS, opened=True), None)
    for token in ("x", "x", "</think>", *"abcdefgh"):
        parser.push(token)
        budget.accept(inside=parser.in_reasoning)
        assert budget.forced is None

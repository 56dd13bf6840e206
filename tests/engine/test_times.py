"""Loops whose tokens mark times, and prompts whose pieces have conditions: answers in closed form."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError, PackageInvalidError

ASK: dict[str, Any] = {"temperature": 0, "max_new_tokens": 24}
# A flat model: ten marks that are likelier together than the word, though each is far less likely, as long as more
# than half of them may still come.
CHANCES = {"a": 0.3, "</s>": 0.12, **dict.fromkeys("0123456789", 0.058)}
STRETCHES = "0a1" + "1a2" + "2a3" + "3a4" + "4"  # from then on the word outweighs the five marks left


def marked(metadata: dict[str, Any]) -> None:
    """Digits are marks of time while the parameter says so."""
    metadata["inputs"]["parameters"] = {"times": {"type": "boolean", "default": True}}
    metadata["stages"][0]["times"] = {"first": "0", "last": "9", "latest_start": "2", "when": "parameters.times"}


def test_marks_come_in_pairs_and_in_order(open_tiny: Any) -> None:
    pipe, _ = open_tiny("flat", probabilities=CHANCES, edit=marked)
    assert pipe.generate("x", raw=True, **ASK).text == STRETCHES.ljust(24, "a")


def test_an_answer_without_times_has_no_marks(open_tiny: Any) -> None:
    pipe, _ = open_tiny("flat", probabilities=CHANCES, edit=marked)
    assert pipe.run({"prompt": "x", "times": False}, **ASK)["text"] == "a" * 24


def test_every_choice_and_every_beam_has_its_own_marks(open_tiny: Any) -> None:
    pipe, _ = open_tiny("flat", probabilities=CHANCES, edit=marked)
    sampled = pipe.generate("x", raw=True, n=3, seed=5, max_new_tokens=24)
    beams, _ = open_tiny("flat", probabilities=CHANCES, edit=marked, generation={"defaults": {"num_beams": 2}})
    searched = beams.generate("x", raw=True, max_new_tokens=9)
    for text in [*(choice.text for choice in sampled.choices), searched.text]:
        digits = [character for character in text if character.isdigit()]
        assert text[0] in "012"
        assert digits == sorted(digits)


@pytest.mark.parametrize("asked", [{"regex": "a+"}, {"response_format": {"type": "json_object"}}])
def test_another_form_of_the_answer_is_refused_by_its_name(open_tiny: Any, asked: dict[str, Any]) -> None:
    pipe, _ = open_tiny("flat", probabilities=CHANCES, edit=marked)
    with pytest.raises(OptionError, match="writes marks of time") as found:
        pipe.generate("x", raw=True, **ASK, **asked)
    assert found.value.param == next(iter(asked))


def test_what_the_loop_suppresses_stays_suppressed(open_tiny: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        marked(metadata)
        metadata["stages"][0]["suppress"] = ["1", "a"]

    pipe, _ = open_tiny("flat", probabilities=CHANCES | {"b": 0.2}, edit=edit)
    text = pipe.generate("x", raw=True, **ASK).text
    assert text.startswith("0b2")
    assert not {"1", "a"} & set(text)


@pytest.mark.parametrize("tokens", [["a"], ["a", "</s>"]])
def test_what_may_not_begin_an_answer_may_follow(open_tiny: Any, tokens: list[str]) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["begin_suppress"] = tokens

    pipe, _ = open_tiny("flat", probabilities={"a": 0.5, "</s>": 0.2, "b": 0.1, "c": 0.05}, edit=edit)
    first = "" if tokens == ["a"] else "b" + "a" * 5
    assert pipe.generate("x", raw=True, temperature=0, max_new_tokens=6).text == first
    least = pipe.generate("x", raw=True, temperature=0, min_new_tokens=2, max_new_tokens=6)
    assert least.text == "b" + "a" * 5
    bound = pipe.generate("x", raw=True, temperature=0, max_new_tokens=6, choices=["ab", "ca"])
    assert bound.text == "ca"


def test_a_piece_of_a_prompt_is_there_under_its_condition(open_tiny: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["inputs"] = {"parameters": {"loud": {"type": "boolean", "default": False}, "letter": letters}}
        metadata["stages"][0]["prompt"] = {"template": ["<s>", {"text": "{letter}", "when": "parameters.loud"}]}

    letters = {"type": "choice", "values": ["a", "b"], "default": "a"}
    pipe, _ = open_tiny("table", table={"<s>": "x", "a": "y", "b": "z"}, edit=edit)
    answers = {
        (loud, letter): pipe.run({"loud": loud, "letter": letter}, temperature=0, max_new_tokens=1)["text"]
        for loud in (False, True)
        for letter in ("a", "b")
    }
    assert answers == {(False, "a"): "x", (False, "b"): "x", (True, "a"): "y", (True, "b"): "z"}


@pytest.mark.parametrize("when", ["parameters.nothing", "1 +"])
def test_a_condition_that_means_nothing_is_a_problem(open_tiny: Any, when: str) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["prompt"] = {"template": ["<s>", {"text": "a", "when": when}]}

    with pytest.raises(PackageInvalidError) as caught:
        open_tiny("table", edit=edit)
    assert any("prompt" in problem.at.path for problem in caught.value.problems)

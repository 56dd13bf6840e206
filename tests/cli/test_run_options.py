"""Every flag of ``run`` has its effect, and what a package cannot do with it is refused by the flag."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.run_options import FORM, LENGTH, PROMPT, QUEUE, SAMPLING, TOOLS
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.types import RequestOptions

Command = Callable[..., Any]
A, B, C, D = "abcd"


@pytest.fixture
def letters(tmp_path: Path) -> TinyPackage:
    """Four letters, each with its share at every place."""
    return write_package(tmp_path / "letters", "flat", probabilities={A: 0.4, B: 0.3, C: 0.2, D: 0.1})


@pytest.fixture
def drawn(command: Command, letters: TinyPackage) -> Callable[..., str]:
    """``drawn("--top-k", 1)``: the forty letters that come with these options."""

    def draw(*options: Any) -> str:
        ran = command("run", letters.path, "-", "--seed", 5, "--max-new-tokens", 40, "--json", *options, stdin=b"x")
        assert ran.code == 0, ran.err
        return str(json.loads(ran.out)["text"])

    return draw


def test_every_option_of_a_request_has_a_flag() -> None:
    flags = {name for group in (PROMPT, FORM, TOOLS, QUEUE, *SAMPLING) for name in group.options}
    elsewhere = {"messages", "tokens", "key"}  # --session, and the shares of one process
    assert set(RequestOptions.__annotations__) - elsewhere <= flags
    assert flags - set(RequestOptions.__annotations__) == {"session", "json_object", "dry_sequence_breaker_ids"}
    assert {"max_new_tokens", "n", "stop"} <= set(LENGTH.options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--typical-p", 0.001], {B}),  # -ln 0.3 is closest to the entropy, 1.28
        (["--top-a", 1], {A, B, C}),  # at least 0.4 squared
        (["--xtc-probability", 1, "--xtc-threshold", 0.15], {C, D}),
        (["--xtc-probability", 1, "--xtc-threshold", 0.25], {B, C, D}),
        (["--mirostat", 2, "--mirostat-tau", 0.01], {A}),
        (["--mirostat", 2, "--mirostat-tau", 1, "--mirostat-eta", 0.001], {A, B}),  # at most 2 bits
        (["--mirostat", 2, "--mirostat-tau", 1, "--mirostat-eta", 1], {A, B, C}),
    ],
)
def test_filters_leave_these_letters(drawn: Callable[..., str], options: list[Any], expected: set[str]) -> None:
    assert set(drawn()) == {A, B, C, D}
    assert set(drawn(*options)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "aaaaaaaa"),
        (["--repetition-penalty", 50], "abcda"),
        (["--frequency-penalty", 2], "abcdabcd"),
        (["--presence-penalty", 2], "abcdaaaa"),
        (["--no-repeat-ngram-size", 2], "aabac"),
        (["--dry-multiplier", 10], "aaab"),
        (["--dry-multiplier", 10, "--dry-allowed-length", 1], "aab"),
        (["--dry-multiplier", 0.2, "--dry-allowed-length", 1, "--dry-base", 1], "aaaaaaaa"),
        (["--dry-multiplier", 0.2, "--dry-allowed-length", 1, "--dry-base", 3], "aaab"),
        (["--dry-multiplier", 10, "--dry-range", 2], "aaaaaaaa"),
        (["--dry-multiplier", 10, "--dry-sequence-breaker", A], "aaaaaaaa"),
        (["--dry-multiplier", 10, "--dry-sequence-breaker-id", A], "aaaaaaaa"),
        (["--dry-multiplier", 10, "--dry-sequence-breaker-id", B], "aaab"),
        (["--logit-bias", (A, "=-100")], "bbbbbbbb"),
        (["--logit-bias", (A, "=-1"), "--logit-bias", (B, "=-1")], "cccc"),
        (["--banned-token-id", A, "--banned-token-id", B], "cccc"),
        (["--forced-token-id", D, "--forced-token-id", C], "dcaaaa"),
        (["--stop-token-id", B, "--frequency-penalty", 2], "a"),
    ],
)
def test_penalties_biases_and_bans_lead_to_these_letters(
    drawn: Callable[..., str], letters: TinyPackage, options: list[Any], expected: str
) -> None:
    written = [_with_ids(options, index, letters) for index in range(len(options))]
    assert drawn("--temperature", 0, *written).startswith(expected)


def _with_ids(options: list[Any], index: int, package: TinyPackage) -> Any:
    """An option's value, letters behind a flag for tokens written as ids."""
    value = options[index]
    if isinstance(value, tuple):
        return f"{package.vocabulary.id(value[0])}{value[1]}"
    return package.vocabulary.id(value) if str(options[index - 1]).endswith("-id") else value


def test_seeds_and_samples_differ(command: Command, drawn: Callable[..., str]) -> None:
    assert drawn() == drawn() != drawn("--seed", 6)


def test_length_is_exact_when_given_and_else_the_contexts(command: Command, letters: TinyPackage) -> None:
    def usage(*options: Any) -> Any:
        return json.loads(command("run", letters.path, "x", "--json", *options).out)["usage"]

    assert usage("--max-new-tokens", 7)["completion_tokens"] == 7
    for context, given in ((256, ()), (64, ("--context-length", 64))):
        counts = usage(*given)
        assert counts["prompt_tokens"] + counts["completion_tokens"] == context
    refused = command("run", letters.path, "x", "--context-length", 64, "--max-new-tokens", 64)
    assert (refused.code, refused.out) == (2, "")
    assert "64" in refused.err


def test_ends_are_put_off_or_ignored(command: Command, tiny: TinyPackage) -> None:
    def length(*options: Any) -> int:
        ran = command("run", tiny.path, "hello", "--json", *options)
        return int(json.loads(ran.out)["usage"]["completion_tokens"])

    assert length() == 5
    assert length("--min-new-tokens", 9, "--max-new-tokens", 12) > 8
    assert length("--ignore-eos", "--max-new-tokens", 11) == 11


def test_log_probabilities_are_in_json_and_refused_without(command: Command, letters: TinyPackage) -> None:
    def choice(*options: Any) -> Any:
        ran = command("run", letters.path, "x", "--max-new-tokens", 2, "--temperature", 0, "--json", *options)
        return json.loads(ran.out)["choices"][0]

    assert "logprobs" not in choice()
    (first, _) = choice("--logprobs")["logprobs"]
    assert first["logprob"] == pytest.approx(-0.9163, abs=1e-3)
    assert first["top"] == []
    top = choice("--logprobs", "--top-logprobs", 2)["logprobs"][0]["top"]
    assert [entry["token"] for entry in top] == letters.vocabulary.id_list([A, B])
    processed = choice("--logprobs", "--logprobs-of", "processed", "--logit-bias", f"{top[0]['token']}=50")
    assert processed["logprobs"][0]["logprob"] == pytest.approx(0, abs=1e-6)
    scored = json.loads(
        command("run", letters.path, "ab", "--raw", "--json", "--max-new-tokens", 1, "--prompt-logprobs", 1).out
    )
    (second,) = scored["prompt_logprobs"]
    assert second["logprob"] == pytest.approx(-1.2040, abs=1e-3)
    assert len(second["top"]) == 1
    for option in (["--logprobs"], ["--prompt-logprobs", 1]):
        ran = command("run", letters.path, "x", *option)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {option[0]} has no effect on streamed text")
        assert "--json" in ran.err


def test_drafts_are_counted_and_can_be_left_out(command: Command, tmp_path: Path) -> None:
    script = [" O", " P", " Q"] * 30
    package = write_package(tmp_path / "again", "script", script=script, update="append")

    def usage(*options: Any) -> Any:
        ran = command("run", package.path, "hello", "--temperature", 0, "--json", "--draft", "lookup", *options)
        found = json.loads(ran.out)
        assert found["text"] == "".join(script)
        return found["usage"]

    counts = usage()
    assert counts["drafted_tokens"] >= counts["accepted_tokens"] > 0
    assert "drafted_tokens" not in usage("--no-speculate")


SCHEMA = {"type": "object", "properties": {"x": {"enum": [7]}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (["--json-object"], lambda text: isinstance(json.loads(text), dict)),
        (["--json-schema", json.dumps(SCHEMA)], lambda text: json.loads(text) == {"x": 7}),
        (["--json-schema", "@schema.json"], lambda text: json.loads(text) == {"x": 7}),
        (["--regex", "[0-9]{3}b"], lambda text: text[:3].isdigit() and text[3:] == "b"),
        (["--grammar", 'start: "x" "y"'], lambda text: text == "xy"),
        (["--grammar", "@words.lark"], lambda text: text == "xy"),
        (["--choice", "yes", "--choice", "no"], lambda text: text in ("yes", "no")),
    ],
)
def test_the_answer_has_the_form_that_was_asked_for(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], fits: Callable[[str], bool]
) -> None:
    package = write_package(tmp_path / "flat", "flat")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "words.lark").write_text('start: "x" "y"\n')
    for seed in range(3):
        found = json.loads(command("run", package.path, "x", "--seed", seed, "--json", *options).out)
        assert found["finish_reason"] == "length" or fits(found["text"])
    assert found["finish_reason"] == "stop" or options == ["--json-object"]


def test_a_suffix_stands_behind_a_gap(command: Command, tmp_path: Path) -> None:
    infill = {"prefix": "<s>", "suffix": "<|go|>", "middle": "<unk>", "order": "psm"}
    package = write_package(
        tmp_path / "fim", "script", edit=lambda metadata: metadata["tokenizer"].update(infill=infill)
    )
    ran = command("run", package.path, "ab", "--suffix", "cd", "--max-new-tokens", 1, "--json")
    assert json.loads(ran.out)["usage"]["prompt_tokens"] == 7
    both = command("run", package.path, "ab", "--suffix", "cd", "--system", "x")
    assert (both.code, both.out) == (2, "")
    assert both.err.startswith("error: --system needs the chat template, which --suffix leaves out")


def test_a_package_without_infill_refuses_a_suffix_by_its_flag(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "ab", "--suffix", "cd")
    assert (ran.code, ran.out) == (2, "")
    assert "infill" in ran.err


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "aaaaa"),  # by the mean, a letter is worth more than the end
        (["--length-penalty", 0], ""),  # by the sum, the end at once is
        (["--early-stopping"], "a"),  # the better of the first two that ended
    ],
)
def test_a_beam_search_weighs_whole_answers(command: Command, tmp_path: Path, options: list[Any], text: str) -> None:
    generation = {"defaults": {"num_beams": 1}}  # declares it
    package = write_package(tmp_path / "beams", "flat", probabilities={A: 0.6, "</s>": 0.4}, generation=generation)
    ran = command("run", package.path, "x", "--num-beams", 2, "--max-new-tokens", 5, "--json", *options)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["text"] == text


def test_a_package_that_declares_no_beam_search_refuses_it(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "x", "--num-beams", 2)
    assert (ran.code, ran.out) == (2, "")
    assert "--num-beams" in ran.err

"""Sizes of values in expressions: of one row, without the batch axis and without padding, whoever shares its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.errors import RequestError
from genai_pipeline.testing import write_package

TEXTS = ["a", "bcd", "efghijk", "l" * 17, "mn" * 20, "op", "bcd", "l" * 30]
ASK: dict[str, Any] = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


def _bound(expression: str) -> Any:
    """The length of a row as an expression."""

    def edit(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["body"][0]["inputs"]["nonpad_kv_seqlen"] = expression

    return edit


def _scaled(expression: str) -> Any:
    """A mask that an operation multiplies by what is 1 where a size is right."""

    def edit(metadata: dict[str, Any]) -> None:
        body = metadata["stages"][0]["body"]
        body[0]["inputs"]["attention_mask"] = "mask"
        op = {"op": "affine", "with": {"scale": expression}, "inputs": {"value": "loop.attention_mask"}}
        body.insert(0, {**op, "outputs": {"result": "mask"}})

    return edit


def _answers_hold(folder: Path, update: str, edit: Any, **load: Any) -> None:
    package = write_package(folder, "kv", update=update, edit=edit)
    assert gp.validate(package.path)[1] == ()
    prompts = [list(package.vocabulary.encode(text)) for text in TEXTS]
    with gp.load(package.path, **load) as pipe:
        streams = [pipe.stream(tokens=prompt, **ASK) for prompt in prompts]
        found = [[event.token for event in stream if event.token is not None] for stream in streams]
    assert found == [package.expected(prompt, 8) for prompt in prompts]


@pytest.mark.parametrize(
    "expression",
    [
        "loop.past_length + loop.tokens.shape[0]",
        "loop.past_length + loop.tokens.length",
        "loop.attention_mask.length",
        "loop.attention_mask.shape[-1]",
        "loop.past_length + loop.position_ids.shape[0]",
        "loop.total_length + 0 * prompt.tokens.shape[0]",
        "loop.total_length + 0 * prompt.tokens.length",
    ],
)
def test_a_port_takes_sizes_of_a_row(tmp_path: Path, expression: str) -> None:
    _answers_hold(tmp_path / "package", "scatter", _bound(expression), max_batch=6, prefill_chunk=12)


@pytest.mark.parametrize(
    "expression",
    [
        "(loop.past_length + loop.tokens.shape[0]) / loop.total_length",
        "loop.attention_mask.length / loop.total_length",
        "prompt.tokens.shape[0] / prompt.length",
    ],
)
def test_parameters_of_operations_take_sizes_of_a_row(tmp_path: Path, expression: str) -> None:
    _answers_hold(tmp_path / "package", "in_place", _scaled(expression), max_batch=6, prefill_chunk=12)


def test_a_prompt_may_be_chosen_by_its_size(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["prompt"] = "prompt.tokens if prompt.tokens.shape[0] > 0 else prompt.tokens"

    _answers_hold(tmp_path / "package", "append", edit)


@pytest.mark.parametrize(
    ("expression", "axis", "instead"),
    [
        (
            "loop.past_length + loop.tokens.shape[1]",
            "'loop.tokens' has 1 axis here, so no .shape[1]",
            "loop.tokens.shape[0]",
        ),
        ("loop.position_ids.shape[-2]", "'loop.position_ids' has 1 axis", "loop.position_ids.shape[0]"),
        ("prompt.tokens.shape[1]", "'prompt.tokens' has 1 axis", "prompt.tokens.shape[0]"),
        ("min(3, prompt.offsets.shape[2])", "'prompt.offsets' has 2 axes", "prompt.offsets.shape[1]"),
    ],
)
def test_an_axis_that_a_row_lacks_is_reported(tmp_path: Path, expression: str, axis: str, instead: str) -> None:
    _, problems = gp.validate(write_package(tmp_path, "kv", update="scatter", edit=_bound(expression)).path)
    (problem,) = problems
    assert (problem.code, problem.at.path) == ("graph.expression_type", "stages[0].body[0].inputs.nonpad_kv_seqlen")
    assert axis in problem.message
    assert instead in problem.hint


def test_the_name_of_a_missing_value_is_looked_for_without_its_measure(tmp_path: Path) -> None:
    edit = _bound("loop.past_length + loop.tokenz.shape[0]")
    (problem,) = gp.validate(write_package(tmp_path, "kv", update="scatter", edit=edit).path)[1]
    assert problem.code == "graph.undefined_value"
    assert "nothing publishes 'loop.tokenz'" in problem.message
    assert problem.hint == "did you mean 'loop.tokens'?"


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("prompt.length", "not a whole number"),
        ("prompt.length + 1", "not a whole number"),
        ("present(prompt)", "not true or false"),
        ("prompt.length / 2", "not a number"),
    ],
)
def test_a_prompt_is_no_number(tmp_path: Path, expression: str, what: str) -> None:
    package = write_package(tmp_path, "kv", edit=lambda metadata: metadata["stages"][0].update(prompt=expression))
    (problem,) = gp.validate(package.path)[1]
    assert problem.code == "graph.prompt"
    assert what in problem.message


@pytest.mark.parametrize("expression", ["prompt.tokens[0]", "[prompt.tokens, prompt.tokens]"])
def test_what_turns_out_to_be_no_list_of_tokens_is_refused(tmp_path: Path, expression: str) -> None:
    package = write_package(tmp_path, "kv", edit=lambda metadata: metadata["stages"][0].update(prompt=expression))
    with gp.load(package.path) as pipe, pytest.raises(RequestError, match="is no list of tokens"):
        pipe.generate("hello", **ASK)

"""Structural checks: each faulty flow gives exactly its problem, at its place, with a hint that helps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from genai_pipeline.problems import Problem

Check = Callable[[str], list[Problem]]

HEAD = """\
schema_version: "1"
name: sample
inputs:
  prompt: {modality: text}
  parameters: {steps: {type: integer, default: 4}, mode: {type: string, default: fast}}
outputs:
  text: {modality: text, value: generate.text}
tokenizer: {file: tokenizer.json}
components:
  embed: {model: embed.onnx}
  decoder: {model: decoder.onnx}
"""
BODY = """\
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - {run: embed, inputs: {ids: loop.tokens, scale: parameters.steps}, outputs: {rows: rows}}
      - {run: decoder, inputs: {rows: rows, mode: "parameters.steps if parameters.mode == 'fast' else 1"},
         outputs: {logits: logits}}
    logits: logits
"""


def codes(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.code, problem.at.path) for problem in problems]


def test_a_sound_package_has_no_problems(check: Check) -> None:
    assert check(HEAD + BODY) == []


@pytest.mark.parametrize(
    ("old", "new", "code", "path", "hint"),
    [
        ("rows: rows, mode", "rows: rowz, mode", "graph.undefined_value", "stages[0].body[1].inputs.rows", "'rows'"),
        ("loop.tokens", "loop.token", "graph.undefined_value", "stages[0].body[0].inputs.ids", "'loop.tokens'"),
        ("scale: parameters.steps", "scale: steps", "graph.undefined_value", "stages[0].body[0].inputs.scale",
         "'parameters.steps'"),
        ("prompt: prompt.tokens", "prompt: prompt.words", "graph.undefined_value", "stages[0].prompt", "prompt.tokens"),
        ("prompt: prompt.tokens", "prompt: prompt.text", "graph.prompt", "stages[0].prompt", "'prompt.tokens'"),
        ("prompt: prompt.tokens", "prompt: prompt", "graph.needs_field", "stages[0].prompt", "prompt.tokens"),
        ("    prompt: prompt.tokens\n", "", "graph.prompt", "stages[0]", "prompt.tokens"),
        ("logits: logits\n", "logits: rowz\n", "graph.undefined_value", "stages[0].logits", "'rows'"),
        ("    logits: logits\n", "    logits: prompt.tokens\n", "graph.decode_result", "stages[0].logits", "in body"),
        ("value: generate.text", "value: generate.txt", "graph.unreachable_output", "outputs.text", "'generate.text'"),
        ("value: generate.text", "value: generate.tokens", "graph.output_modality", "outputs.text", "'generate.text'"),
        ("value: generate.text", "value: rows", "graph.not_visible", "outputs.text", "collect"),
        ("outputs: {logits: logits}", "outputs: {logits: rows}", "graph.two_producers", "stages[0].body[1]", "rename"),
        ("modality: text, value", "modality: image, value", "graph.output_modality", "outputs.text", ""),
        ("scale: parameters.steps", "scale: parameters.mode * 2", "graph.expression_type",
         "stages[0].body[0].inputs.scale", ""),
        ("scale: parameters.steps", "scale: prompt.tokens + 1", "graph.expression_type",
         "stages[0].body[0].inputs.scale", "affine"),
    ],
)  # fmt: skip
def test_one_fault_one_problem(check: Check, old: str, new: str, code: str, path: str, hint: str) -> None:
    text = HEAD + BODY
    assert old in text
    problems = [problem for problem in check(text.replace(old, new)) if problem.severity == "error"]
    if code == "graph.two_producers":  # the loop has lost its logits too
        problems = [problem for problem in problems if problem.at.path != "stages[0].logits"]
    assert codes(problems) == [(code, path)]
    assert hint in problems[0].hint


def test_a_cycle_is_named_with_its_path(check: Check) -> None:
    text = HEAD + BODY.replace("ids: loop.tokens", "ids: logits")
    (problem,) = check(text)
    assert (problem.code, problem.at.path) == ("graph.cycle", "stages[0].body[0]")
    assert "stage 'embed' -> rows -> stage 'decoder' -> logits -> stage 'embed'" in problem.message
    assert "carry" in problem.hint


def test_every_cycle_is_reported(check: Check) -> None:
    stages = """\
stages:
  - {id: a, run: embed, inputs: {x: by}, outputs: {y: ay}}
  - {id: b, run: embed, inputs: {x: ay}, outputs: {y: by}}
  - {id: c, run: decoder, inputs: {x: cy}, outputs: {y: cy}}
"""
    text = (HEAD + stages).replace("generate.text", "prompt.text")
    cycles = [problem for problem in check(text) if problem.code == "graph.cycle"]
    assert [problem.at.path for problem in cycles] == ["stages[0]", "stages[2]"]


def test_carry_is_the_legal_way_back(check: Check) -> None:
    text = (
        HEAD
        + BODY.replace("ids: loop.tokens", "ids: loop.last")
        + ("    carry: {last: {initial: prompt.tokens, next: logits}}\n")
    )
    assert [problem for problem in check(text) if problem.severity == "error"] == []


def test_a_loop_that_reads_its_own_result_has_a_cycle(check: Check) -> None:
    text = HEAD + BODY.replace("prompt: prompt.tokens", "prompt: generate.tokens")
    errors = [problem.code for problem in check(text) if problem.severity == "error"]
    assert errors == ["graph.cycle"]


def test_next_token_is_read_after_the_choice_only(check: Check) -> None:
    (problem,) = check(HEAD + BODY.replace("ids: loop.tokens", "ids: loop.next_token"))
    assert problem.code == "graph.next_token_early"
    assert "'embed', 'decoder'" in problem.message


def test_unused_things_are_warnings_and_notes(check: Check) -> None:
    text = HEAD.replace("  decoder:", "  spare: {model: s.onnx}\n  decoder:") + BODY.replace(
        "outputs: {rows: rows}", "outputs: {rows: rows, other: other}"
    ).replace("parameters.mode == 'fast'", "parameters.steps > 2")
    text += "  - {id: later, run: embed, inputs: {ids: generate.tokens}, outputs: {rows: unread}}\n"
    found = {(problem.code, problem.at.path): problem.severity for problem in check(text)}
    assert found == {
        ("graph.unused_component", "components.spare"): "warning",
        ("graph.unused_input", "inputs.parameters.mode"): "warning",
        ("graph.unused_value", "stages[0].body[0]"): "note",
        ("graph.unused_stage", "stages[1]"): "warning",
    }


def test_admission_reads_only_what_is_known_before(check: Check) -> None:
    limits = (
        "limits: {context_length: parameters.steps * 100 + prompt.length, max_new_tokens: generate.tokens.length}\n"
    )
    problems = check(HEAD + BODY + limits)
    assert codes(problems) == [("graph.admission_value", "limits.max_new_tokens")]


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ("when: parameters.steps", "graph.expression_type"),
        ("when: parameters.mode", "graph.expression_type"),
        ("for_each: parameters.steps", "graph.not_a_list"),
        ("for_each: prompt.tokens", "graph.not_a_list"),
        ("guide: {scale: 2, negative: {missing: loop.tokens}}", "graph.guide_port"),
        ("guide: {scale: parameters.mode, negative: {ids: loop.tokens}}", "graph.expression_type"),
    ],
)
def test_what_a_stage_may_carry_is_checked(check: Check, extra: str, code: str) -> None:
    text = HEAD + BODY.replace("{run: embed, ", f"{{run: embed, {extra}, ")
    assert [problem.code for problem in check(text) if problem.severity == "error"] == [code]


def test_loop_values_cannot_be_carried_over(check: Check) -> None:
    text = HEAD + BODY + "    carry: {step: {initial: 0, next: logits}}\n"
    assert ("graph.two_producers", "stages[0].carry.step") in codes(check(text))


def test_operations_are_known_by_name(check: Check) -> None:
    text = HEAD + BODY + "  - {id: more, op: concatt, inputs: {values: [generate.tokens]}}\n"
    (problem, *_) = [problem for problem in check(text) if problem.severity == "error"]
    assert (problem.code, problem.at.path) == ("graph.unknown_operation", "stages[1].op")
    assert "concat" in problem.hint


def test_all_faults_are_reported_at_once(check: Check) -> None:
    text = (HEAD + BODY).replace("rows: rows, mode", "rows: rowz, mode").replace("generate.text", "generate.txt")
    text = text.replace("prompt: prompt.tokens", "prompt: prompt.text")
    assert codes(check(text)) == [
        ("graph.unreachable_output", "outputs.text"),
        ("graph.prompt", "stages[0].prompt"),
        ("graph.undefined_value", "stages[0].body[1].inputs.rows"),
    ]


EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_example_of_every_shape_has_a_sound_structure(check: Check, file: Path) -> None:
    assert check(file.read_text(encoding="utf-8")) == []

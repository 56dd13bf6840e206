"""Open questions of a draft: each is one error at its place, and what follows from it is not reported."""

from __future__ import annotations

from collections.abc import Callable

from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Problem

Load = Callable[[str], tuple[PackageSpec | None, tuple[Problem, ...]]]

DRAFT = """\
schema_version: "1"
name: draft
inputs:
  prompt: {modality: text}
outputs:
  text: {modality: text, value: generate.text}
tokenizer: {file: tokenizer.json, eos: ["</s>"]}
components:
  decoder:
    model: model.onnx
    kv:
      update: UPDATE
      past: "past.{layer}.{part}"
      present: "present.{layer}.{part}"
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - run: decoder
        inputs: {input_ids: BINDING}
        outputs: {logits: logits}
    logits: logits
"""


def test_a_value_that_asks_is_one_problem_with_its_line_and_path(load: Load) -> None:
    text = DRAFT.replace("UPDATE", '"TODO: how? append | in_place"').replace("BINDING", '"TODO: loop.tokens | data.x"')
    spec, problems = load(text)
    assert spec is None
    assert [(p.code, p.at.line, p.at.path, p.message) for p in problems] == [
        ("draft.todo", 12, "components.decoder.kv.update", "still open: how? append | in_place"),
        ("draft.todo", 21, "stages[0].body[0].inputs.input_ids", "still open: loop.tokens | data.x"),
    ]


def test_other_problems_are_listed_beside_the_questions(load: Load) -> None:
    text = DRAFT.replace("UPDATE", '"TODO: ?"').replace("BINDING", "loop.tokens")
    _, problems = load(text.replace("tokenizer:", "tokeniser:"))
    assert [p.code for p in problems] == ["schema.unknown_field", "draft.todo"]


def test_a_note_that_asks_keeps_the_package_from_loading_and_the_rest_is_checked(load: Load) -> None:
    text = DRAFT.replace("UPDATE", "append").replace("BINDING", "loop.tokens")
    spec, problems = load(text + 'x-todo: ["TODO: is it so?", "and so?"]\n')
    assert spec is not None
    assert [(p.code, p.at.path, p.message, p.severity) for p in problems] == [
        ("draft.todo", "x-todo[0]", "still open: is it so?", "error"),
        ("draft.todo", "x-todo[1]", "still open: and so?", "error"),
    ]


def test_a_missing_part_is_a_question_of_its_own(load: Load) -> None:
    text = (
        DRAFT.partition("stages:")[0].replace("UPDATE", "append") + 'stages: "TODO: how do the graphs fit together?"\n'
    )
    _, problems = load(text)
    assert [(p.code, p.at.path) for p in problems] == [("draft.todo", "stages")]


def test_the_mark_inside_a_text_is_no_question(load: Load) -> None:
    text = DRAFT.replace("UPDATE", "append").replace("BINDING", "loop.tokens")
    assert load(text + 'summary: "a list of TODO: notes"\n')[1] == ()
    assert load(text + "# TODO: write a summary\n")[1] == ()

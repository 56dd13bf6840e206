"""What the schema refuses: one problem per fault, at the right place, saying what is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.schema import check_schema
from genai_pipeline.metadata.yaml_reader import read_text
from genai_pipeline.problems import Problem

Case = tuple[str, str, str, int, str, str]


def problems_of(text: str) -> tuple[Problem, ...]:
    root, found = read_text(text, "f")
    assert found == []
    assert root is not None
    return check_schema(root).problems


# What is written, what stands there instead, and the one problem: code, line, path, a piece of message and hint.
CASES: list[Case] = [
    ("components:", "componets:", "schema.unknown_field", 9, "componets", "did you mean 'components'?"),
    ("run: decoder", "rn: decoder", "schema.unknown_field", 19, "stages[0].body[0].rn", "did you mean 'run'?"),
    ("{context_length", "{contextlength", "schema.unknown_field", 24, "limits.contextlength", "'context_length'"),
    ("temperature:", "temprature:", "schema.unknown_field", 23, "generation.defaults.temprature", "'temperature'"),
    ("8192}", "8192, zzz: 1}", "schema.unknown_field", 24, "limits.zzz", "fields: context_length, max_new_tokens"),
    ("8192}", "8192, <<: {}}", "schema.unknown_field", 24, 'limits["<<"]', "YAML 1.1"),
    (
        "prompt: prompt",
        "prompt: {templat: [a]} # ",
        "schema.unknown_field",
        17,
        "stages[0].prompt.templat",
        "'template'",
    ),
    ("loop: decode", "loop: decod", "schema.value", 16, "stages[0].loop", "did you mean 'decode'?"),
    ("modality: text}\nout", "modality: txt}\nout", "schema.value", 5, "inputs.prompt.modality", "'text'"),
    ("update: in_place", "update: inplace", "schema.value", 12, "components.decoder.kv.update", "'in_place'"),
    ('schema_version: "1"', "schema_version: 1", "schema.version", 2, "schema_version", 'write "1" in quotes'),
    ('schema_version: "1"', 'schema_version: "2"', "schema.version", 2, "schema_version", "this reader knows '1'"),
    ('schema_version: "1"', "# none", "schema.required", 3, "", 'schema_version: "1"'),
    ("name: smollm2-135m", "name: 3", "schema.type", 3, "name", 'write it in quotes: "3"'),
    ("name: smollm2-135m", "name: a b", "schema.name", 3, "name", "a package name has letters"),
    ("name: smollm2-135m", "name: |\n  a", "schema.name", 3, "name", "a package name has letters"),
    ("layers: 30", 'layers: "30"', "schema.type", 13, "components.decoder.kv.layers", "write it without quotes"),
    ("layers: 30", "layers: yes", "schema.type", 13, "components.decoder.kv.layers", "must be a whole number"),
    ("layers: 30", "layers: 0", "schema.range", 13, "components.decoder.kv.layers", "must be at least 1, not 0"),
    ("layers: 30", "layers: []", "schema.empty", 13, "components.decoder.kv.layers", "must not be empty"),
    ("layers: 30", "layers: [1, 1]", "schema.duplicate", 13, "components.decoder.kv.layers[1]", "occurs twice"),
    ("temperature: 0.2", "temperature: -1", "schema.range", 23, "generation.defaults.temperature", "at least 0"),
    ("temperature: 0.2", "temperature: .nan", "schema.range", 23, "generation.defaults.temperature", "finite"),
    ("temperature: 0.2", "temperature: .inf", "schema.range", 23, "generation.defaults.temperature", "finite"),
    ("top_p: 0.9", "top_p: 0", "schema.range", 23, "generation.defaults.top_p", "must be above 0"),
    ("top_p: 0.9", "min_p: 1.5", "schema.range", 23, "generation.defaults.min_p", "at most 1"),
    ("top_p: 0.9", "top_k: 1.5", "schema.type", 23, "generation.defaults.top_k", "must be a whole number, not 1.5"),
    ("{modality: text}\nout", "text\nout", "schema.type", 5, "inputs.prompt", "must be a mapping, not 'text'"),
    (
        "{modality: text}\nout",
        "{modality: text, list: yes}\nout",
        "schema.type",
        5,
        "inputs.prompt.list",
        "true and false",
    ),
    ("input_ids: loop.tokens", "input_ids: ", "schema.type", 20, "stages[0].body[0].inputs.input_ids", "empty"),
    ("input_ids: loop.tokens", 'input_ids: ""', "schema.empty", 20, "stages[0].body[0].inputs.input_ids", "empty"),
    ('present: "present.{layer}.{part}",', "", "schema.required", 12, "components.decoder.kv", "'present'"),
    ("model: model.onnx", "model: {first: a}", "schema.required", 11, "components.decoder.model", "later: decode.onnx"),
    (
        "model: model.onnx",
        "batch: none",
        "schema.choice",
        10,
        "components.decoder",
        "one of model or variants is needed",
    ),
    ("    logits: logits\ngen", "gen", "schema.choice", 15, "stages[0]", "exactly one of logits or tokens is needed"),
    (
        "    logits: logits\ngen",
        "    logits: a\n    tokens: b\ngen",
        "schema.choice",
        23,
        "stages[0].tokens",
        "not logits and tokens",
    ),
    (
        "    logits: logits\ngen",
        "    logits: a\n    block: 2\ngen",
        "schema.required",
        23,
        "stages[0].block",
        "'block' needs 'tokens'",
    ),
    (
        "    loop: decode",
        "    loop: decode\n    op: x",
        "schema.choice",
        17,
        "stages[0].op",
        "only one of run, op or loop",
    ),
    ("run: decoder", "id: x", "schema.choice", 19, "stages[0].body[0]", "run, op, loop or for_each with body"),
    ("run: decoder", "for_each: xs", "schema.choice", 19, "stages[0].body[0]", "run, op, loop or for_each with body"),
    (
        "outputs: {logits: logits}",
        "outputs: {logits: [a]}",
        "schema.type",
        21,
        "stages[0].body[0].outputs.logits",
        "text",
    ),
    (
        "outputs: {logits: logits}",
        "outputs: {logits: a b}",
        "schema.name",
        21,
        "stages[0].body[0].outputs.logits",
        "a name has",
    ),
    ("inputs:\n", "inputs:\n  my-in: {modality: text}\n", "schema.name", 5, "inputs.my-in", "a name has letters"),
    (
        "tokenizer:",
        "tokenizers: {a: {file: a}}\ntokenizer:",
        "schema.choice",
        9,
        "tokenizer",
        "only one of tokenizer or tokenizers",
    ),
]


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "path", "words"), CASES, ids=[f"{c[2]}-{c[1][:24]}" for c in CASES]
)
def test_one_fault_is_one_problem(
    old: str, new: str, code: str, line: int, path: str, words: str, example: Callable[[str], str]
) -> None:
    text = example("smollm2")
    assert text.count(old) >= 1
    problems = problems_of(text.replace(old, new, 1))
    assert [(p.code, p.at.line, p.at.path) for p in problems] == [(code, line, path)]
    assert words in f"{problems[0].message} | {problems[0].hint}"


def test_a_slip_in_a_section_name_does_not_hide_what_is_inside(example: Callable[[str], str]) -> None:
    text = example("smollm2").replace("components:", "componets:").replace("layers: 30", "layers: x")
    assert [(p.code, p.at.path) for p in problems_of(text)] == [
        ("schema.unknown_field", "componets"),
        ("schema.type", "componets.decoder.kv.layers"),
    ]


def test_two_slips_for_one_field_are_two_problems(example: Callable[[str], str]) -> None:
    text = example("smollm2").replace("run: decoder", "rn: decoder\n        runn: x")
    assert [p.code for p in problems_of(text)] == ["schema.unknown_field"] * 2


def test_all_faults_of_a_file_are_found(example: Callable[[str], str]) -> None:
    text = (
        example("smollm2")
        .replace("name: smollm2-135m", "nme: smollm2-135m")
        .replace("run: decoder", "rum: decoder")
        .replace("8192", "-1")
        .replace("top_p: 0.9", "top_p: hot")
        .replace("dtype: float32", "dtype: float31")
    )
    assert {(p.code, p.at.line) for p in problems_of(text)} == {
        ("schema.unknown_field", 3),
        ("schema.unknown_field", 19),
        ("schema.range", 24),
        ("schema.type", 23),
        ("schema.value", 13),
    }


def test_notes_are_left_alone_everywhere(example: Callable[[str], str]) -> None:
    text = (
        example("smollm2")
        .replace("8192}", "8192, x-why: 1}")
        .replace("run: decoder", "run: decoder\n        x-note: [1]")
        .replace("components:\n", "components:\n  x-todo: ask\n")
    )
    assert problems_of(text) == ()


@pytest.mark.parametrize("text", ["[1]", "5", "text", "null"])
def test_a_document_that_is_no_mapping(text: str) -> None:
    assert [(p.code, p.at.line, p.at.column) for p in problems_of(text)] == [("schema.type", 1, 1)]


def test_what_remains_usable(node: Callable[[str], Node], example: Callable[[str], str]) -> None:
    text = example("smollm2")
    renamed = check_schema(node(text.replace("componets", "components").replace("limits:", "limit:")))
    assert renamed.whole
    assert renamed.root is not None
    assert "limits" in renamed.root.mapping
    faulty = check_schema(node(text.replace("layers: 30", "layers: x")))
    assert not faulty.whole
    assert faulty.root is not None
    assert "layers" not in faulty.root.mapping["components"].mapping["decoder"].mapping["kv"].mapping


def test_hostile_documents_end_soon_and_without_a_traceback() -> None:
    stage = "{run: a}"
    for _ in range(16):
        stage = f"{{for_each: x, body: [{stage}]}}"
    assert [p.code for p in problems_of(f"stages: [{stage}]")] == ["schema.nesting"]
    mixed = ", ".join(f"{n}, a{n}" for n in range(4000))
    assert {p.code for p in problems_of(f"capabilities: [{mixed}]")} == {"schema.type", "schema.required"}
    many = "".join(f"k{n}: 1\n" for n in range(2000))
    assert len(problems_of(many)) == 2001
    deep = "[" * 50 + "]" * 50
    assert "schema.type" not in {p.code for p in problems_of(f"stages: [{{run: a, inputs: {{x: {deep}}}}}]")}

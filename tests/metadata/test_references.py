"""Names and values inside the file: each fault is one problem at the word itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.metadata.load import METADATA_FILE, load_package

TEXT = """\
schema_version: "1"
name: broken
inputs:
  prompt: {modality: text}
  pic: {modality: image, program: see, required: false}
  parameters:
    lang: {type: choice, values: [en, de], default: en}
    steps: {type: integer, default: 20, minimum: 1, maximum: 100, multiple_of: 5}
outputs:
  text: {modality: text, value: talk.text}
tokenizers:
  main: {file: tokenizer.json}
preprocess:
  see: [{decode: {}}]
data:
  codes: {file: codes.npy}
components:
  reader: {model: reader.onnx}
  decoder:
    model: decoder.onnx
    kv: {update: fixed, past: past, from: reader}
stages:
  - {id: read, run: reader, inputs: {x: pic.pixels}, outputs: {y: seen}}
  - id: talk
    loop: decode
    prompt: {template: ["<s>", "{lang}"]}
    tokenizer: main
    body:
      - {id: step, run: decoder, inputs: {x: loop.tokens}, outputs: {l: logits}}
    logits: logits
generation:
  defaults: {temperature: 0.5}
  overrides: {temperature: {minimum: 0, maximum: 1}}
adapters:
  - {id: poems, file: poems.safetensors, component: decoder}
"""

CASES = [
    ("run: decoder", "run: decodr", "reference.component", 29, "stages[1].body[0].run", "did you mean 'decoder'?"),
    ("run: reader", "run: zzz", "reference.component", 23, "stages[0].run", "there are: decoder, reader"),
    ("from: reader", "from: redaer.kv", "reference.component", 21, "components.decoder.kv.from", "'reader'"),
    ("component: decoder}", "component: x}", "reference.component", 35, "adapters[0].component", "there are"),
    ("program: see", "program: sea", "reference.program", 5, "inputs.pic.program", "did you mean 'see'?"),
    ("tokenizer: main", "tokenizer: mian", "reference.tokenizer", 27, "stages[1].tokenizer", "'main'"),
    (
        "{modality: text}\n  pic",
        "{modality: text, tokenizer: t}\n  pic",
        "reference.tokenizer",
        4,
        "inputs.prompt.tokenizer",
        "main",
    ),
    ("values: [en, de], default: en", "from: data.voices", "reference.data", 7, "inputs.parameters.lang.from", "codes"),
    ("id: read", "id: prompt", "reference.duplicate_name", 23, "stages[0].id", "the input on line 4"),
    ("id: read", "id: steps", "reference.duplicate_name", 23, "stages[0].id", "the parameter on line 8"),
    ("id: read", "id: codes", "reference.duplicate_name", 23, "stages[0].id", "the data entry on line 16"),
    ("id: read", "id: talk", "reference.duplicate_name", 24, "stages[1].id", "the stage on line 23"),
    ("id: step", "id: read", "reference.duplicate_name", 29, "stages[1].body[0].id", "the stage on line 23"),
    ("steps: {", "pic: {", "reference.duplicate_name", 8, "inputs.parameters.pic", "the input on line 5"),
    ("id: read", "id: loop", "reference.reserved_name", 23, "stages[0].id", "a word of the expression language"),
    ("l: logits}", "l: parameters}", "reference.reserved_name", 29, "stages[1].body[0].outputs.l", "'parameters'"),
    (
        "name: broken",
        "name: broken\ncapabilities: [loop.decod]",
        "reference.capability",
        3,
        "capabilities[0]",
        "loop.decode",
    ),
    ("default: 20", "default: 0", "value.default", 8, "inputs.parameters.steps.default", "below the minimum 1"),
    ("default: 20", "default: 105", "value.default", 8, "inputs.parameters.steps.default", "above the maximum 100"),
    ("default: 20", "default: 21", "value.default", 8, "inputs.parameters.steps.default", "not a multiple of 5"),
    ("default: 20", "default: 20.5", "value.default", 8, "inputs.parameters.steps.default", "not a whole number"),
    ("minimum: 1,", "minimum: 200,", "value.bounds", 8, "inputs.parameters.steps.minimum", "above maximum 100"),
    ("maximum: 100", "maximum: .inf", "value.bounds", 8, "inputs.parameters.steps.maximum", "finite"),
    ("default: en", "default: fr", "value.default", 7, "inputs.parameters.lang.default", "de, en"),
    ("required: false", "min_items: 3, max_items: 2", "value.bounds", 5, "inputs.pic.min_items", "above max_items 2"),
    ("required: false", "list: true, max_items: 1", "value.list", 5, "inputs.pic.list", "contradicts max_items: 1"),
    ("required: false", "list: false, max_items: 2", "value.list", 5, "inputs.pic.list", "contradicts max_items: 2"),
    ("temperature: 0.5", "temperature: 1.5", "value.default", 32, "generation.defaults.temperature", "overrides allow"),
    (
        "{minimum: 0, maximum",
        "{minimum: 2, maximum",
        "value.bounds",
        33,
        "generation.overrides.temperature.minimum",
        "above",
    ),
    ("{minimum: 0, maximum: 1}", "[0, 1]", "value.default", 32, "generation.defaults.temperature", "values 0, 1"),
    ("codes.npy", "codes.bin", "reference.raw_data", 16, "data.codes.file", "dtype and shape"),
    ("codes.npy", "codes.npz", "reference.data_key", 16, "data.codes.file", "key says which"),
    ("tokenizer.json", "absent.txt", "path.missing", 12, "tokenizers.main.file", "does not exist"),
    ("tokenizer.json", "../tokenizer.json", "path.parent", 12, "tokenizers.main.file", "'..'"),
    ("codes.npy", "/etc/codes.npy", "path.absolute", 16, "data.codes.file", "it is absolute"),
    ("decoder.onnx", "sub/decoder.onn", "path.missing", 20, "components.decoder.model", "does not exist"),
    ("poems.safetensors", "poems", "path.missing", 35, "adapters[0].file", "does not exist"),
]


def test_the_base_has_no_problem(spec: Callable[[str], Any]) -> None:
    assert spec(TEXT).name == "broken"


@pytest.mark.parametrize(("old", "new", "code", "line", "path", "words"), CASES, ids=[f"{c[2]}-{c[4]}" for c in CASES])
def test_one_fault_is_one_problem(
    old: str, new: str, code: str, line: int, path: str, words: str, load: Callable[[str], Any]
) -> None:
    assert TEXT.count(old) == 1
    _, problems = load(TEXT.replace(old, new))
    assert [(p.code, p.at.line, p.at.path) for p in problems] == [(code, line, path)]
    assert words in f"{problems[0].message} | {problems[0].hint}"


@pytest.mark.parametrize(
    ("kind", "default", "right"),
    [
        ("boolean", "true", True),
        ("boolean", "1", False),
        ("boolean", '"true"', False),
        ("string", '"5"', True),
        ("string", "true", False),
        ("number", "5", True),
        ("number", "0.1", True),
        ("integer", "5.0", True),
    ],
)
def test_defaults_have_the_type_of_their_parameter(
    kind: str, default: str, right: bool, load: Callable[[str], Any]
) -> None:
    _, problems = load(
        TEXT.replace("  parameters:\n", f"  parameters:\n    extra: {{type: {kind}, default: {default}}}\n")
    )
    assert {p.code for p in problems} <= {"value.default", "schema.type"}
    assert (problems == ()) is right


def test_multiples_of_fractions_are_not_a_matter_of_rounding(load: Callable[[str], Any]) -> None:
    line = "    third: {type: number, default: 0.3, multiple_of: 0.1}\n"
    assert load(TEXT.replace("  parameters:\n", f"  parameters:\n{line}"))[1] == ()


def test_a_faulty_component_is_still_a_component(load: Callable[[str], Any]) -> None:
    _, problems = load(TEXT.replace("model: decoder.onnx", "model: [decoder.onnx]"))
    assert [(p.code, p.at.path) for p in problems] == [("schema.type", "components.decoder.model")]


def test_a_misspelled_section_is_still_the_section(load: Callable[[str], Any]) -> None:
    _, problems = load(TEXT.replace("components:", "component:").replace("run: decoder", "run: decodr"))
    assert [p.code for p in problems] == ["schema.unknown_field", "reference.component"]


def test_faults_of_all_layers_are_found_together(load: Callable[[str], Any]) -> None:
    text = (
        TEXT.replace("name: broken", "name: broken\nname: again")
        .replace("modality: text}\n  pic", "modality: txt}\n  pic")
        .replace("default: 20", "default: 21")
        .replace("run: decoder", "run: decodr")
        .replace("tokenizer.json", "../tokenizer.json")
        .replace("x: loop.tokens", "x: loop.tokens +")
    )
    _, problems = load(text)
    assert sorted(p.code for p in problems) == [
        "expression.syntax",
        "path.parent",
        "reference.component",
        "schema.value",
        "value.default",
        "yaml.duplicate_key",
    ]


def test_links_out_of_the_package_are_refused_at_load(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (tmp_path / "secret.onnx").touch()
    (package / METADATA_FILE).write_text(
        'schema_version: "1"\nname: a\ninputs: {x: {modality: tensor}}\noutputs: {y: {modality: tensor, value: y}}\n'
        "components: {m: {model: m.onnx}}\nstages: [{run: m, inputs: {x: x.values}, outputs: {y: y}}]\n"
    )
    (package / "m.onnx").symlink_to("../secret.onnx")
    assert [p.code for p in load_package(package)[1]] == ["path.outside"]

"""The schema itself: closed, described, with examples that are examples, and it knows the whole grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.schema import check_schema, load_schema

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.yaml"))
SCHEMA = load_schema()


def subschemas(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema inside a schema, with its path."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for key in ("properties", "patternProperties", "$defs"):
        for name, child in schema.get(key, {}).items():
            yield from subschemas(child, f"{path}/{key}/{name}")
    for key in ("items", "additionalProperties", "if", "then", "else", "not"):
        yield from subschemas(schema.get(key), f"{path}/{key}")
    for key in ("oneOf", "anyOf", "allOf"):
        for index, child in enumerate(schema.get(key, ())):
            yield from subschemas(child, f"{path}/{key}/{index}")


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(dict(SCHEMA))


def test_every_field_and_definition_has_a_description_and_examples() -> None:
    bare = [
        f"{path}/{name}"
        for path, schema in subschemas(SCHEMA)
        for key in ("properties", "$defs")
        for name, field in schema.get(key, {}).items()
        if isinstance(field, Mapping) and "/if" not in path and "/then" not in path
        if "description" not in field or (key == "properties" and not field.get("examples"))
        if "enum" not in field or "description" in field
    ]
    assert bare == []


def test_every_example_is_valid_where_it_stands() -> None:
    wrong = []
    for path, schema in subschemas(SCHEMA):
        for example in schema.get("examples", ()):
            rule = {**schema, "$defs": SCHEMA["$defs"]}
            wrong += [(path, example, error.message) for error in Draft202012Validator(rule).iter_errors(example)]
    assert wrong == []


def test_every_mapping_with_fixed_fields_is_closed_and_takes_notes() -> None:
    dispatchers = {"/$defs/input", "/$defs/parameter", "/$defs/output"}  # a branch closes them
    for path, schema in subschemas(SCHEMA):
        if "properties" not in schema or "/if" in path or "/then" in path or path in dispatchers:
            continue
        assert schema["additionalProperties"] is False, path
        assert "^x-" in schema["patternProperties"], path


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_examples_of_the_grammar_are_valid(file: Path, node: Callable[[str], Node]) -> None:
    checked = check_schema(node(file.read_text(encoding="utf-8")))
    assert checked.problems == ()
    assert checked.whole


# One line per construct of the grammar that the example files do not use: (where it goes, what is added there).
CONSTRUCTS = [
    ("top", "summary: a model\nlicense: MIT\ncapabilities: [loop.iterate]"),
    ("top", "structured_output: {modes: [json_schema, regex]}\ntools: {format: json_tagged}"),
    ("top", "reasoning: {open: <think>, close: </think>}\nsession: {idle_seconds: 60, max_sessions: 2}"),
    ("top", "speculative: {draft: smollm2-135m}"),
    ("top", "speculative: {lookup: {min_match: 2, max_match: 4, tokens: 8}}"),
    ("top", "speculative: {propose: {body: [{run: m, inputs: {h: hidden}, outputs: {l: drafts}}], logits: drafts}}"),
    ("top", "adapters: [{id: a, file: a.safetensors, component: m, when: present(pictures)}]"),
    ("top", "limits: {context_length: parameters.n, max_new_tokens: 5, sizes: {audio_seconds: 30, file_bytes: 9}}"),
    ("top", "generation: {defaults: {temperature: 0, stop: [a, b], logit_bias: {'5': -1}}, overrides: {seed: true}}"),
    ("top", "generation: {overrides: {top_k: [1, 20], temperature: {minimum: 0, maximum: 1}}}"),
    ("top", "tokenizers: {source: {file: s.model, kind: sentencepiece}, target: {file: t.txt, kind: characters}}"),
    ("top", "tokenizer: {file: t.json, bos: 1, eos: 2, pad: [3, 4], add_bos: false, truncate: 9, pad_to: 9}"),
    ("top", "x-note: {anything: [goes, 1]}"),
    ("top", "preprocess: {p: [{standardize: {axis: 1}}, {clip: {}}]}"),
    ("data", "table: {files: [a.npy, b.npy]}"),
    ("data", "table: {file: raw.bin, dtype: bfloat16, shape: [2, 3]}"),
    ("data", "table: {file: voices.npz, key: af}"),
    ("inputs", "sound: {modality: audio, live: true}"),
    ("inputs", "series: {modality: tensor, dtype: float32, shape: [length, 3], default: [1, 2]}"),
    ("inputs", "pair: {modality: items, min_items: 2, max_items: 2, program: p}"),
    ("inputs", "film: {modality: video, placeholder: {token: <video>, count: film.tokens}}"),
    ("inputs", 'pic: {modality: image, placeholder: {token: <i>, expand: "{{ features(4) }}"}, required: false}'),
    ("inputs", "parameters: {a: {type: number, minimum: 0, maximum: 1, multiple_of: 0.25, default: 0.5}}"),
    ("inputs", "parameters: {a: {type: boolean, default: true}, b: {type: string}}"),
    ("inputs", "parameters: {a: {type: choice, values: [x, 1]}, b: {type: choice, from: data.voices}}"),
    ("outputs", "o: {modality: image, value: a.b, range: [-1, 1], layout: nchw, format: png}"),
    ("outputs", "o: {modality: video, value: a, rate: 24}"),
    ("outputs", "o: {modality: text, value: a, segments: s, format: srt}"),
    ("components", "pair: {model: {first: a.onnx, later: b.onnx}, span: {first: whole, later: 1}}"),
    ("components", "other: {package: whisper-tiny.en, component: encoder, session: {providers: [cpu]}}"),
    ("components", "v: {variants: [{provider: cuda, precision: float16, model: a.onnx}], batch: pack, pad: {x: .nan}}"),
    ("components", "s: {model: a.onnx, session: {provider_options: {cuda: {a: 1}}, config: {k: v}}, batch: none}"),
    ("components", "n: {model: a.onnx, no_batch_axis: [scales], kv: {update: replace, past: h, present: h_next}}"),
    ("components", "k: {model: a.onnx, kv: {update: scatter, past: a, present: b, layers: [0, 2], window: [4, null]}}"),
    ("components", "k: {model: a.onnx, kv: {update: fixed, past: a, from: m.kv}}"),
    (
        "components",
        "k: {model: a.onnx, kv: {update: append, past: a, present: b, history: 9, sinks: 1, keep: session}}",
    ),
    (
        "components",
        "k: {model: a.onnx, kv: {update: replace, past: a, present: b, shape: [batch, 2, length], initial: -.inf}}",
    ),
    (
        "components",
        "k: {model: a.onnx, kv: {update: append, past: a, present: b, heads: [1, 2], dtype: [float16, float32]}}",
    ),
    ("stages", "- {run: m, state: read, when: a > 1, guide: {scale: 2, negative: {x: y}}}"),
    ("stages", "- {op: concat, with: {axis: 1, x: [a, {b: c}]}, inputs: {values: [a, [b, 1]], t: {tokens: [<s>, 5]}}}"),
    ("stages", "- {for_each: items, when: true, body: [{run: m}]}"),
    ("stages", "- {loop: iterate, until: done, max: parameters.n, body: [{run: m}], collect: {x: y}}"),
    ("stages", "- {loop: iterate, over: {value: x, axis: 1, chunk: 4, before: 1, after: 1}, body: [{run: m}]}"),
    ("stages", "- {loop: iterate, schedule: {op: euler, with: {steps: 4}}, body: [{run: m}]}"),
    ("stages", "- {loop: decode, prompt: {tokens: [<s>]}, tokens: chosen, block: 4, body: [{run: m}]}"),
    (
        "stages",
        "- {loop: decode, prompt: {template: [<s>, '{lang}']}, logits: l, body: [{run: m}], suppress: [<a>, 5]}",
    ),
    ("stages", "- {loop: decode, logits: l, body: [{run: m}], positions: {op: grid_positions, inputs: {t: p.tokens}}}"),
    ("stages", "- {loop: decode, logits: l, body: [{run: m}], walk: {rows: r, axis: 1, blank: 0, max_per_row: 9}}"),
    ("stages", "- {loop: decode, logits: l, body: [{run: m}], stop: {tokens: [5], when: x > 0}, tokenizer: target}"),
    ("stages", "- {loop: decode, logits: l, body: [{run: m}], generation: {defaults: {top_k: 5}}, for_each: xs}"),
]

BASE = {
    "inputs": ["p: {modality: text}"],
    "outputs": ["r: {modality: vector, value: y}"],
    "data": [],
    "components": ["m: {model: m.onnx}"],
    "stages": ["- {run: m, inputs: {x: p.tokens}, outputs: {y: y}}"],
}


@pytest.mark.parametrize(("where", "line"), CONSTRUCTS, ids=[line[:40] for _, line in CONSTRUCTS])
def test_every_construct_of_the_grammar_is_known(where: str, line: str, node: Callable[[str], Node]) -> None:
    lines = ['schema_version: "1"', "name: all"]
    for section, entries in BASE.items():
        lines += [f"{section}:" if entries or where == section else f"{section}: {{}}"]
        lines += [f"  {entry}" for entry in [*entries, *([line] if where == section else [])]]
    text = "\n".join([*lines, line if where == "top" else ""])
    assert check_schema(node(text)).problems == ()


def test_names_in_messages_and_docs_are_unique() -> None:
    titles = [definition.get("title", name) for name, definition in SCHEMA["$defs"].items()]
    anchors = [re.sub(r"\W+", "-", title.lower()) for title in titles if title != "stage"]
    assert len(anchors) == len(set(anchors))

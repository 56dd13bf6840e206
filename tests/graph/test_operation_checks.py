"""Calls of operations against their declarations: what fits has no problem, each misfit gives exactly its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from genai_pipeline.graph.scope import Scope
from genai_pipeline.metadata.operations import BUILT_IN
from genai_pipeline.problems import Problem

Check = Callable[[str], list[Problem]]

HEAD = """\
schema_version: "1"
name: sample
inputs:
  prompt: {modality: text}
  audio: {modality: audio, program: sound}
  images: {modality: image, program: picture, max_items: 2}
  parameters: {size: {type: integer, default: 4}, share: {type: number, default: 0.5}}
outputs:
  last: {modality: tensor, value: last}
tokenizer: {file: tokenizer.json}
data: {table: {file: table.npy, dtype: float32, shape: [8, 2]}}
preprocess:
  sound: [{decode: {}}, {mono: {}}]
  picture: [{decode: {mode: RGB}}, {rescale: {factor: 0.5}}]
components:
  encoder: {model: encoder.onnx}
stages:
  - id: read
    run: encoder
    inputs: {pixels: images.pixels, sound: audio.samples, ids: prompt.tokens, n: parameters.size,
             share: parameters.share, table: data.table}
"""


def package(call: str, *, last: str = "last") -> str:
    """A package whose last stage is the call; it publishes ``last``."""
    return HEAD + f"  - {{id: called, {call}}}\n" + ("" if last == "last" else f"  - {last}\n")


def errors(problems: list[Problem]) -> list[tuple[str, str]]:
    return [(problem.code, problem.at.path) for problem in problems if problem.severity == "error"]


@pytest.mark.parametrize(
    "call",
    [
        "op: take, inputs: {value: data.table, index: prompt.tokens}, outputs: {result: last}",
        "op: take, inputs: {value: data.table, index: 3}, outputs: {result: last}",
        "op: take, inputs: {value: data.table, index: [0, 1]}, outputs: {result: last}",
        "op: concat, with: {axis: 0}, inputs: {values: [prompt.tokens, prompt.tokens]}, outputs: {result: last}",
        "op: concat, with: {axis: 0}, inputs: {values: images.pixels}, outputs: {result: last}",
        "op: truncate, with: {size: parameters.size + 1}, inputs: {value: data.table}, outputs: {result: last}",
        "op: fill, with: {shape: [1, parameters.size, '2 * 3']}, outputs: {result: last}",
        "op: fill, with: {shape: data.table.shape, value: parameters.share}, outputs: {result: last}",
        "op: tokenize, inputs: {text: prompt.text}, outputs: {tokens: last}",
        "op: pool, inputs: {states: data.table}, outputs: {result: last}",
        "op: pool, inputs: {states: read.anything}, outputs: {result: last}",
        "op: coalesce, inputs: {values: [images.pixels, prompt.text]}, outputs: {result: last}",
        "op: softmax, inputs: {value: data.table, labels: prompt.text}, outputs: {items: last}",
    ],
)
def test_what_fits_has_no_problem(check: Check, call: str) -> None:
    assert errors(check(package(call))) == []


@pytest.mark.parametrize(
    ("call", "code", "path"),
    [
        ("op: take, inputs: {value: data.table, index: parameters.share}", "operation.input", "inputs.index"),
        ("op: take, inputs: {value: prompt.text, index: 0}", "operation.input", "inputs.value"),
        ("op: take, inputs: {value: images.pixels, index: 0}", "operation.input", "inputs.value"),
        ("op: take, inputs: {value: data.table, index: '''a'''}", "operation.input", "inputs.index"),
        ("op: pool, inputs: {states: [1, 2]}", "operation.input", "inputs.states"),
        ("op: tokenize, inputs: {text: 5}, outputs: {tokens: last}", "operation.input", "inputs.text"),
        ("op: take, inputs: {value: data.table}", "operation.missing_input", "inputs"),
        ("op: take, inputs: {value: data.table, index: 0, axis: 1}", "operation.unknown_input", "inputs.axis"),
        ("op: fill, with: {shape: 4}", "call.parameter", "with.shape"),
        ("op: fill, with: {shape: [-1]}", "call.parameter", "with.shape"),
        ("op: fill, with: {shape: [4], dtype: parameters.size}", "call.parameter", "with.dtype"),
        ("op: fill, with: {shape: [parameters.sise]}", "graph.undefined_value", "with.shape"),
        ("op: fill, with: {shape: ['4 +']}", "call.parameter", "with.shape"),
        ("op: truncate, with: {size: '4 / 2'}, inputs: {value: data.table}", "call.parameter", "with.size"),
        (
            "op: truncate, with: {size: parameters.share}, inputs: {value: data.table}",
            "graph.expression_type",
            "with.size",
        ),
    ],
)
def test_each_misfit_is_reported_at_its_place(check: Check, call: str, code: str, path: str) -> None:
    outputs = "" if "outputs" in call else ", outputs: {result: last}"
    assert errors(check(package(call + outputs))) == [(code, f"stages[1].{path}")]


def test_literal_parameters_are_never_read_as_expressions(check: Check) -> None:
    call = "op: render, with: {template: parameters.size}, inputs: {values: prompt.text}, outputs: {result: last}"
    text = package(call).replace("modality: tensor", "modality: text")
    assert errors(check(text)) == []


def test_an_operation_publishes_its_outputs_under_its_id(check: Check) -> None:
    text = package("op: top_k, with: {k: 2}, inputs: {value: data.table}").replace(
        "value: last", "value: called.indices"
    )
    assert errors(check(text)) == []
    (problem,) = [p for p in check(text.replace("called.indices", "called.index")) if p.severity == "error"]
    assert (problem.code, problem.hint) == ("graph.unreachable_output", "did you mean 'called.indices'?")


def test_a_value_of_an_operation_has_what_is_declared(linked: Callable[[str], Scope]) -> None:
    text = package("op: tokenize, inputs: {text: prompt.text}, outputs: {tokens: last}")
    values = linked(text).values
    assert (values["last"].dtype, values["last"].shape) == ("int64", ("", ""))
    assert (values["called.mask"].dtype, values["called.mask"].declared) == ("int64", False)
    values = linked(
        package("op: split, with: {axis: 0, parts: 2}, inputs: {value: data.table}, outputs: {result: last}")
    ).values
    assert (values["last"].type, values["last"].is_list) == ("list", True)
    values = linked(package("op: detokenize, inputs: {tokens: prompt.tokens}, outputs: {result: last}")).values
    assert values["last"].type == "string"


def test_a_graph_does_not_take_what_an_operation_says_it_is_not(check: Check) -> None:
    text = package(
        "op: detokenize, inputs: {tokens: prompt.tokens}, outputs: {result: words}",
        last=("{op: affine, inputs: {value: words}, outputs: {result: last}}"),
    )
    assert errors(check(text)) == [("operation.input", "stages[2].inputs.value")]


def test_positions_of_a_loop_need_an_operation_that_gives_them(check: Check) -> None:
    loop = """
  - id: write
    loop: decode
    prompt: prompt.tokens
    positions: {op: OP, inputs: INPUTS}
    body: [{run: encoder, inputs: {ids: loop.tokens, at: loop.position_ids}, outputs: {logits: logits}}]
    logits: logits
"""
    text = HEAD.replace("value: last", "value: write.tokens") + loop.lstrip("\n")
    good = text.replace("OP", "grid_positions").replace("INPUTS", "{length: prompt.length, at: images.positions}")
    assert errors(check(good)) == []
    bad = text.replace("OP", "argmax").replace("INPUTS", "{value: prompt.tokens}")
    codes = [code for code, _ in errors(check(bad))]
    assert codes == ["operation.unknown_output", "operation.unknown_output"]


def test_slow_operations_stay_out_of_decode_loops() -> None:
    assert [name for name, spec in BUILT_IN.items() if spec.runs == "offload" and spec.in_body] == []

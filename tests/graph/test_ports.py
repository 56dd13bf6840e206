"""Bindings against the ports of graphs: names, dtypes, ranks, sizes over the whole package, logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from genai_pipeline.graph.dims import Dims, End
from genai_pipeline.graph.edges import Component
from genai_pipeline.graph.kv_geometry import resolve_state
from genai_pipeline.graph.port_types import casts, fits, literal_fault, literal_rank
from genai_pipeline.graph.ports import check_ports
from genai_pipeline.graph.scopes import build_scopes
from genai_pipeline.graph.signature import Dim, GraphSignature, Port
from genai_pipeline.metadata.expressions import parse
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.problems import Location, Problem, Problems

Described = Mapping[str, tuple[str, Sequence[Dim] | None]]
Check = Callable[..., list[Problem]]

DECODER = """
schema_version: "1"
name: decoder
inputs:
  prompt: {modality: text}
  parameters:
    speed: {type: number, default: 1.0}
    voice: {type: integer, default: 0}
outputs: {text: {modality: text, value: generate.text}}
tokenizer: {file: tokenizer.json}
components:
  decoder: {model: model.onnx, kv: {update: append, past: "past.{layer}", present: "present.{layer}"}}
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - {run: decoder, inputs: INPUTS, outputs: {logits: logits}}
    logits: logits
"""
PAIR = """
schema_version: "1"
name: pair
inputs: {prompt: {modality: text}}
outputs: {text: {modality: text, value: generate.text}}
tokenizer: {file: tokenizer.json}
components:
  embed: {model: embed.onnx}
  middle: {model: middle.onnx}
  decoder: {model: model.onnx}
stages:
  - id: generate
    loop: decode
    prompt: prompt.tokens
    body:
      - {id: a, run: embed, inputs: {ids: loop.tokens}, outputs: {rows: rows}}
      - {id: b, run: middle, inputs: {x: rows}, outputs: {y: middle_rows}}
      - {id: c, run: decoder, inputs: {rows: middle_rows, skip: rows}, outputs: {logits: logits}}
    logits: logits
"""
IDS = {"input_ids": ("int64", ("batch", "s"))}
STATE = {f"past.{layer}": ("float32", ("batch", 2, "past", 4)) for layer in (0, 1)}
NEXT = {f"present.{layer}": ("float32", ("batch", 2, "total", 4)) for layer in (0, 1)}
LOGITS = {"logits": ("float32", ("batch", "s", 9))}


def ports(described: Described) -> dict[str, Port]:
    return {
        name: Port(name, dtype, None if shape is None else tuple(shape)) for name, (dtype, shape) in described.items()
    }


def signature(inputs: Described, outputs: Described) -> GraphSignature:
    return GraphSignature(ports(inputs), ports(outputs), {"ai.onnx": 21}, {})


@pytest.fixture
def check(spec: Callable[[str], PackageSpec]) -> Check:
    """Port problems of a document with graphs of these signatures."""

    def run(text: str, **signatures: GraphSignature) -> list[Problem]:
        package, problems = spec(text), Problems()
        root = build_scopes(package, signatures, problems)
        components = {
            name: Component(package.components[name], found, resolve_state(package.components[name], found, problems))
            for name, found in signatures.items()
        }
        check_ports(root, components, problems)
        return [problem for problem in problems if not problem.code.startswith("graph.")]

    return run


@pytest.fixture
def decoder(check: Check) -> Check:
    """Port problems of one decoder: ``inputs`` as YAML, and its ports besides state."""

    def run(
        inputs: str = "{input_ids: loop.tokens}",
        extra: Described | None = None,
        logits: Described = LOGITS,
        component: str = "",
    ) -> list[Problem]:
        text = DECODER.replace("INPUTS", inputs).replace("model: model.onnx,", f"model: model.onnx,{component}")
        return check(text, decoder=signature({**IDS, **STATE, **(extra or {})}, {**logits, **NEXT}))

    return run


def codes(problems: Sequence[Problem]) -> list[str]:
    return [problem.code for problem in problems]


def test_a_decoder_whose_state_is_covered_by_kv_needs_no_more_bindings(decoder: Check) -> None:
    assert decoder() == []


# --- names ------------------------------------------------------------------------------------------------------------


def test_an_unknown_input_names_the_nearest_and_counts_once(decoder: Check) -> None:
    (problem,) = decoder("{input_idz: loop.tokens}")
    assert problem.code == "port.unknown_input"
    assert problem.hint == "did you mean 'input_ids'?"
    assert problem.at.path.endswith("inputs.input_idz")


def test_an_unknown_input_with_no_neighbour_lists_what_there_is(decoder: Check) -> None:
    (problem,) = decoder("{input_ids: loop.tokens, colour: loop.tokens}")
    assert problem.hint == "there are input_ids"


def test_a_required_input_that_nothing_binds_is_named_with_what_to_bind(decoder: Check) -> None:
    (problem,) = decoder(extra={"position_ids": ("int64", ("batch", "s"))})
    assert problem.code == "port.unbound"
    assert "'position_ids' of model.onnx" in problem.message
    assert problem.hint == "bind it: inputs: {position_ids: loop.position_ids}"
    (problem,) = decoder(extra={"seqlens_k": ("int32", ("batch",))})
    assert problem.hint == "bind it: inputs: {seqlens_k: loop.last_index}"


def test_unbound_state_is_told_about_kv(decoder: Check) -> None:
    (problem,) = decoder(extra={"conv_state": ("float32", ("batch", 4, 3))})
    assert problem.code == "port.unbound"
    assert "kv entry" in problem.hint


def test_a_pattern_that_matches_nothing_is_one_problem_not_one_for_each_port(check: Check) -> None:
    text = DECODER.replace("INPUTS", "{input_ids: loop.tokens}").replace("past.{layer}", "pasts.{layer}")
    found = check(text, decoder=signature({**IDS, **STATE}, {**LOGITS, **NEXT}))
    assert codes(found) == ["kv.no_match"]


def test_state_is_not_bound_by_hand(decoder: Check) -> None:
    assert codes(decoder("{input_ids: loop.tokens, past.0: loop.tokens}")) == ["port.state"]


def test_an_unknown_output_names_the_nearest(check: Check) -> None:
    text = DECODER.replace("INPUTS", "{input_ids: loop.tokens}").replace("{logits: logits}", "{logit: logits}")
    (problem,) = check(text, decoder=signature({**IDS, **STATE}, {**LOGITS, **NEXT}))
    assert problem.code == "port.unknown_output"
    assert problem.hint == "did you mean 'logits'?"


def test_ports_named_by_the_component_must_be_there(decoder: Check) -> None:
    assert codes(decoder(component=" pad: {input_idz: 0},")) == ["port.unknown_input"]
    assert decoder(component=" pad: {input_ids: 0},") == []


def test_rows_of_logits_are_fed_by_the_engine(decoder: Check) -> None:
    rows: Described = {"logit_rows": ("int64", ("n",))}
    assert decoder(extra=rows, logits={"logits": ("float32", ("n", 9))}) == []


def test_a_family_of_ports_takes_a_list(decoder: Check) -> None:
    family: Described = {f"rate.{i}": ("float32", ("batch",)) for i in range(2)}
    assert decoder("{input_ids: loop.tokens, 'rate.{i}': [parameters.speed, 0.5]}", family) == []
    found = decoder("{input_ids: loop.tokens, 'rate.{i}': [parameters.speed]}", family)
    assert codes(found) == ["port.unbound"]
    found = decoder("{input_ids: loop.tokens, 'rate.{i}': [1.0, 2.0, 3.0]}", family)
    assert codes(found) == ["port.unknown_input"]


# --- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "lossless"),
    [
        ("int32", "int64", True), ("int64", "int32", False), ("uint8", "int16", True), ("int8", "uint8", False),
        ("uint32", "int32", False), ("float32", "float64", True), ("float32", "float16", False),
        ("float16", "bfloat16", False), ("bfloat16", "float32", True), ("float16", "float32", True),
        ("int16", "float32", True), ("int32", "float32", False), ("int32", "float64", True),
        ("float32", "int64", False), ("bool", "float16", True), ("bool", "int64", True), ("int64", "bool", False),
        ("string", "string", True), ("string", "int64", False), ("float32", "string", False),
    ],
)  # fmt: skip
def test_what_casts_without_loss(source: str, target: str, lossless: bool) -> None:
    assert casts(source, target) is lossless


@pytest.mark.parametrize(
    ("name", "origin", "dtype", "target", "allowed"),
    [
        ("loop.tokens", "loop", "int64", "int32", True),
        ("loop.tokens", "loop", "int64", "float32", True),
        ("loop.tokens", "loop", "int64", "float16", False),
        ("loop.tokens", "loop", "int64", "bool", False),
        ("loop.attention_mask", "loop", "int64", "float16", True),
        ("loop.attention_mask", "loop", "int64", "bool", True),
        ("loop.first", "loop", "bool", "float32", True),
        ("prompt.tokens", "input", "int64", "int32", True),
        ("parameters.speed", "parameter", "float64", "float32", True),
        ("parameters.speed", "parameter", "float64", "int64", False),
        ("parameters.voice", "parameter", "int64", "float32", True),
        ("rows", "stage", "int64", "int32", False),
        ("rows", "stage", "int32", "int64", True),
        ("rows", "stage", "float32", "float16", False),
    ],
)
def test_values_of_known_size_may_narrow(name: str, origin: Any, dtype: str, target: str, allowed: bool) -> None:
    assert fits(name, origin, dtype, target) is allowed


@pytest.mark.parametrize(
    ("text", "dtype", "fault"),
    [
        ("1", "int64", None), ("1", "float32", None), ("0.5", "float32", None), ("true", "bool", None),
        ("true", "int64", None), ("-1", "int8", None), ("300", "uint8", "0 to 255"),
        ("-1", "uint8", "0 to 255"), ("0.5", "int64", "no whole number"), ("1", "bool", "a number"),
        ("[0.6, 1, 0.8]", "float32", None),
        ("[1, 0.5]", "int64", "no whole number"), ("2.0", "int64", None), ("1", "string", "a number"),
        ("1 if loop.first else 0.5", "int64", "no whole number"), ("loop.step + 1", "int64", None),
    ],
)  # fmt: skip
def test_literals_must_be_held_by_the_port(text: str, dtype: str, fault: str | None) -> None:
    found = literal_fault(parse(text, Location("f")), dtype)
    assert (found is None) if fault is None else (found is not None and fault in found)


@pytest.mark.parametrize(
    ("text", "rank"), [("1", 0), ("-0.5", 0), ("[1, 2]", 1), ("[[1], [2]]", 2), ("loop.step", None), ("1 + 1", 0)]
)
def test_the_rank_of_what_is_written_or_computed(text: str, rank: int | None) -> None:
    assert literal_rank(parse(text, Location("f"))) == rank


def test_text_and_fractions_do_not_go_to_integer_ports(decoder: Check) -> None:
    extra: Described = {"x": ("int64", ("batch",))}
    for bound in ("prompt.text", "parameters.speed", "0.5"):
        assert codes(decoder(f"{{input_ids: loop.tokens, x: {bound}}}", extra)) == ["port.dtype"], bound
    for bound in ("parameters.voice", "loop.past_length", "3", "true"):
        assert decoder(f"{{input_ids: loop.tokens, x: {bound}}}", extra) == [], bound


def test_what_a_graph_gives_keeps_its_kind(check: Check) -> None:
    found = check(PAIR, **pair(rows=("float32", ("b", "s", 8)), x=("int64", ("b", "s", 8))))
    (problem,) = found
    assert problem.code == "port.dtype"
    assert problem.message == "'x' of middle.onnx takes int64; 'rows' is float32"


# --- ranks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "shape", "allowed"),
    [
        ("loop.tokens", ("batch", "s"), True),
        ("loop.tokens", ("batch", "s", "x"), False),  # has the batch axis already
        ("loop.tokens", ("batch",), False),
        ("loop.tokens", ("batch", 1, "s", "t"), False),
        ("loop.max_length", (), True),
        ("loop.max_length", (1,), True),
        ("loop.max_length", (1, 1), False),
        ("loop.past_length", (), True),  # one number: rows of a run agree
        ("loop.past_length", ("batch",), True),
        ("loop.past_length", ("batch", 1), False),
        ("loop.past_length + 1", ("batch",), True),
        ("loop.past_length + 1", ("batch", "s"), False),
        ("prompt.tokens", ("batch", "prompt"), True),  # one below: gains the batch axis
        ("prompt.tokens", (), False),
        ("[1, 2, 3]", (3,), True),
        ("[1, 2, 3]", ("batch", 3), True),
        ("[1, 2, 3]", (), False),
        ("loop.tokens", None, True),
    ],
)
def test_a_value_has_the_rank_of_its_port_or_one_less(
    decoder: Check, bound: str, shape: Sequence[Dim] | None, allowed: bool
) -> None:
    found = decoder(f"{{input_ids: loop.tokens, x: {bound}}}", {"x": ("int64", shape)})
    assert codes(found) == ([] if allowed else ["port.rank"])


def test_a_list_has_as_many_items_as_its_port(decoder: Check) -> None:
    found = decoder("{input_ids: loop.tokens, x: [1, 2]}", {"x": ("int64", (3,))})
    assert codes(found) == ["port.dims"]


def test_a_list_input_is_not_one_tensor(check: Check) -> None:
    text = """
schema_version: "1"
name: rows
inputs: {prompt: {modality: text, list: true}}
outputs: {vector: {modality: vector, value: rows}}
tokenizer: {file: tokenizer.json}
components: {encoder: {model: model.onnx}}
stages:
  - {run: encoder, inputs: {ids: prompt.tokens}, outputs: {rows: rows}}
"""
    graph = signature({"ids": ("int64", ("b", "s"))}, {"rows": ("float32", ("b", 4))})
    (problem,) = check(text, encoder=graph)
    assert problem.code == "port.rank"
    assert "for_each" in problem.hint


# --- sizes ------------------------------------------------------------------------------------------------------------


def pair(
    rows: tuple[str, Sequence[Dim]] = ("float32", ("b", "s", "h")),
    x: tuple[str, Sequence[Dim]] = ("float32", ("b", "s", "h")),
    y: tuple[str, Sequence[Dim]] = ("float32", ("b", "s", "h")),
    last: tuple[str, Sequence[Dim]] = ("float32", ("b", "s", "h")),
    skip: tuple[str, Sequence[Dim]] = ("float32", ("b", "s", "k")),
) -> dict[str, GraphSignature]:
    return {
        "embed": signature({"ids": ("int64", ("b", "s"))}, {"rows": rows}),
        "middle": signature({"x": x}, {"y": y}),
        "decoder": signature({"rows": last, "skip": skip}, LOGITS),
    }


def test_open_sizes_fit_anything(check: Check) -> None:
    assert check(PAIR, **pair()) == []


def test_fixed_sizes_must_agree_and_both_ends_are_named(check: Check) -> None:
    (problem,) = check(PAIR, **pair(rows=("float32", ("b", "s", 8)), x=("float32", ("b", "s", 16))))
    assert problem.code == "port.dims"
    assert problem.message == "axis 2 of 'rows' is 8, axis 2 of 'x' of middle.onnx is 16"
    assert problem.at.path == "stages[0].body[1].inputs.x"


def test_a_conflict_shows_through_open_sizes_in_between(check: Check) -> None:
    """embed gives 8, decoder takes 16; middle passes any h on."""
    (problem,) = check(PAIR, **pair(rows=("float32", ("b", "s", 8)), last=("float32", ("b", "s", 16))))
    assert problem.code == "port.dims"
    assert "is 8" in problem.message
    assert "is 16" in problem.message


def test_the_same_symbol_of_two_graphs_is_two_sizes(check: Check) -> None:
    """``h`` of middle's input and of the decoder's are different symbols until an edge joins them."""
    fixed = pair(x=("float32", ("b", "s", "h")), y=("float32", ("b", "s", 4)), last=("float32", ("b", "s", 4)))
    assert check(PAIR, **fixed) == []


def test_one_symbol_of_one_graph_is_one_size(check: Check) -> None:
    """The decoder's two inputs share ``h``; what they are fed is 8 and 16."""
    graphs = pair(rows=("float32", ("b", "s", 8)), y=("float32", ("b", "s", 16)), skip=("float32", ("b", "s", "h")))
    (problem,) = check(PAIR, **graphs)
    assert problem.code == "port.dims"
    assert "('h')" in problem.message


def test_batch_axes_are_free(check: Check) -> None:
    assert check(PAIR, **pair(rows=("float32", (1, "s", "h")), x=("float32", ("b", "s", "h")))) == []


def test_a_fixed_number_of_new_tokens_must_be_declared(decoder: Check) -> None:
    fixed: Described = {"x": ("int64", ("batch", 1))}
    assert codes(decoder("{input_ids: loop.tokens, x: loop.tokens}", fixed)) == ["port.span"]
    span = " span: {first: 1, later: 1},"
    assert decoder("{input_ids: loop.tokens, x: loop.tokens}", fixed, component=span) == []


@pytest.mark.parametrize(("rows", "found"), [("batch", []), (1, []), (4, ["port.batch"])])
def test_a_fixed_number_of_rows_is_one_or_refused(decoder: Check, rows: Dim, found: list[str]) -> None:
    assert codes(decoder("{input_ids: loop.tokens, x: loop.tokens}", {"x": ("int64", (rows, "s"))})) == found


def test_what_a_loop_carries_must_fit_at_the_start_and_later(check: Check) -> None:
    text = """
schema_version: "1"
name: frames
inputs: {prompt: {modality: text}}
outputs: {text: {modality: text, value: speak.text}}
tokenizer: {file: tokenizer.json}
components: {opening: {model: opening.onnx}, talker: {model: talker.onnx}}
stages:
  - {run: opening, inputs: {ids: prompt.tokens}, outputs: {rows: rows}}
  - id: speak
    loop: decode
    prompt: prompt.tokens
    carry: {frame: {initial: rows, next: hidden}}
    body:
      - {run: talker, inputs: {frame: loop.frame}, outputs: {logits: logits, hidden: hidden}}
    logits: logits
"""
    opening = signature({"ids": ("int64", ("b", "s"))}, {"rows": ("float32", ("b", "s", 8))})

    def talker(dtype: str, width: int) -> GraphSignature:
        hidden: Described = {"hidden": (dtype, ("b", 1, width))}
        return signature({"frame": ("float32", ("b", "s", 8))}, {**LOGITS, **hidden})

    assert check(text, opening=opening, talker=talker("float32", 8)) == []
    assert codes(check(text, opening=opening, talker=talker("float32", 16))) == ["port.dims"]
    assert codes(check(text, opening=opening, talker=talker("float64", 8))) == ["port.dtype"]


def test_sizes_found_through_edges_can_be_read() -> None:
    problems, at = Problems(), Location("f")
    dims = Dims(problems)
    a, b, c = (End(owner, "n", owner) for owner in "abc")
    dims.equal(a, b, at)
    dims.equal(b, c, at)
    dims.equal(c, End("d", 7, "d"), at)
    assert [dims.size(owner, "n") for owner in "abc"] == [7, 7, 7]
    assert dims.size("z", "n") == "n"
    dims.equal(a, End("", "", ""), at)  # a size without a name says nothing
    assert len(problems) == 0
    dims.equal(End("e", 8, "e"), a, at)
    assert codes(list(problems)) == ["port.dims"]


# --- logits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("described", "found"),
    [
        (("float32", ("batch", "s", 9)), []),
        (("float16", ("batch", "s", "vocabulary")), []),
        (("float32", ("batch", 9)), []),
        (("float32", None), []),
        (("int64", ("batch", "s", 9)), ["port.logits"]),
        (("float32", ("batch",)), ["port.logits"]),
        (("float32", ("batch", "s", 1, 9)), ["port.logits"]),
        (("float32", ("batch", "s")), ["port.logits"]),
    ],
)
def test_logits_are_floats_that_end_in_the_vocabulary(
    decoder: Check, described: tuple[str, Sequence[Dim] | None], found: list[str]
) -> None:
    assert codes(decoder(logits={"logits": described})) == found


def test_tokens_a_body_chooses_are_integers(check: Check) -> None:
    text = PAIR.replace("    logits: logits\n", "    tokens: chosen\n").replace("{logits: logits}", "{logits: chosen}")
    assert codes(check(text, **pair())) == ["port.dtype"]

"""State geometry comes from the graph; what is declared is checked; what neither gives is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from genai_pipeline.graph.kv_geometry import resolve_state
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.graph.signature import Dim, GraphSignature, Port
from genai_pipeline.metadata.model import ComponentSpec, KvSpec
from genai_pipeline.problems import Location, Problems

AT = Location("package.yaml", 3, 5, "components.decoder.kv")
Shape = Sequence[Dim] | None
PAST: tuple[Dim, ...] = ("batch", 2, "past", 4)
PRESENT: tuple[Dim, ...] = ("batch", 2, "total", 4)
PATTERNS = {"past": "past.{layer}.{part}", "present": "present.{layer}.{part}"}


def ports(*found: tuple[str, str, Shape]) -> dict[str, Port]:
    return {name: Port(name, dtype, None if shape is None else tuple(shape)) for name, dtype, shape in found}


def graph(
    past: Shape = PAST,
    present: Shape = PRESENT,
    *,
    layers: Sequence[int] = (0, 1),
    dtypes: Mapping[str, str] | None = None,
    windows: Mapping[str, int | None] | None = None,
) -> GraphSignature:
    """A decoder with keys and values in every layer."""
    kinds = dtypes or {"key": "float32", "value": "float32"}
    slots = [(f"{layer}.{part}", dtype) for layer in layers for part, dtype in kinds.items()]
    return GraphSignature(
        inputs={
            **ports(("input_ids", "int64", ("batch", "s"))),
            **ports(*((f"past.{slot}", t, past) for slot, t in slots)),
        },
        outputs={
            **ports(("logits", "float32", ("batch", "s", 9))),
            **ports(*((f"present.{slot}", t, present) for slot, t in slots)),
        },
        opset={"ai.onnx": 21},
        metadata={},
        windows=windows or {},
    )


def resolve(
    signature: GraphSignature,
    *entries: Mapping[str, Any],
    later: GraphSignature | None = None,
    others: Mapping[str, GraphSignature] | None = None,
) -> tuple[tuple[StatePlan, ...], list[tuple[str, str]]]:
    """The plans, and (code, last key of the path) of each problem."""
    kv = tuple(KvSpec(AT, **{"update": "append", **PATTERNS, **entry}) for entry in entries or ({},))
    component = ComponentSpec(AT, "decoder", model="model.onnx", model_later="later.onnx" if later else None, kv=kv)
    problems = Problems()
    plans = resolve_state(component, signature, problems, later, others)
    return plans, [(problem.code, problem.at.path.rpartition(".")[2]) for problem in problems]


def one(signature: GraphSignature, **entry: Any) -> StatePlan:
    (plan,), problems = resolve(signature, entry)
    assert problems == []
    return plan


def faults(signature: GraphSignature, *entries: Mapping[str, Any], **options: Any) -> list[tuple[str, str]]:
    return resolve(signature, *entries, **options)[1]


def test_everything_can_be_left_to_the_graph() -> None:
    plan = one(graph())
    assert [(tensor.layer, tensor.part) for tensor in plan.tensors] == [
        (0, "key"), (0, "value"), (1, "key"), (1, "value"),
    ]  # fmt: skip
    assert plan.tensors[0] == StateTensor(0, "key", "past.0.key", "present.0.key", "float32", ("batch", 2, "length", 4))
    assert plan.tensors[0].elements_per_token == 8
    assert plan.window == ()


def test_what_agrees_with_the_graph_may_be_declared() -> None:
    declared = {"layers": 2, "heads": 2, "head_dim": 4, "dtype": "float32", "parts": ("key", "value")}
    assert one(graph(), **declared) == one(graph())


def test_what_the_graph_leaves_open_is_taken_from_the_declaration() -> None:
    plan = one(graph(("b", "h", "p", "d"), ("b", "h", "t", "d")), heads=2, head_dim=4)
    assert plan.tensors == one(graph()).tensors


def test_what_only_the_present_port_fixes_counts_too() -> None:
    assert one(graph(("b", "", "p", ""), PRESENT)).tensors == one(graph()).tensors


def test_geometry_may_differ_by_layer() -> None:
    signature = graph(("b", "h", "p", "d"), ("b", "h", "t", "d"))
    shapes = [tensor.shape for tensor in one(signature, heads=(2, 8), head_dim=(64, 16)).tensors]
    assert shapes[0] == shapes[1] == ("batch", 2, "length", 64)
    assert shapes[2] == shapes[3] == ("batch", 8, "length", 16)


def test_layers_are_numbers_not_words() -> None:
    assert [tensor.layer for tensor in one(graph(layers=range(12))).tensors] == [n // 2 for n in range(24)]


def test_keys_and_values_may_have_different_dtypes() -> None:
    plan = one(graph(dtypes={"key": "float16", "value": "float32"}))
    assert [tensor.dtype for tensor in plan.tensors] == ["float16", "float32"] * 2


@pytest.mark.parametrize("windows", [(16, None), (16, 32)])
def test_windows_come_from_the_graph(windows: tuple[int | None, ...]) -> None:
    known = {f"past.{layer}.{part}": windows[layer] for layer in (0, 1) for part in ("key", "value")}
    assert one(graph(windows=known)).window == windows
    assert one(graph(windows=known), window=windows).window == windows


@pytest.mark.parametrize(("known", "kept"), [({}, ()), ({"past.0.key": None}, ()), ({"past.0.key": 8}, (8, None))])
def test_a_window_the_graph_does_not_have_is_reported_and_not_used(
    known: dict[str, int | None], kept: tuple[int | None, ...]
) -> None:
    (plan,), problems = resolve(graph(windows=known), {"window": 16})
    assert problems == [("kv.window", "window")]
    assert plan.window == kept


def test_two_entries_share_a_pattern_by_their_layers() -> None:
    plans, problems = resolve(graph(layers=range(4)), {"layers": (0, 2)}, {"layers": (1, 3)})
    assert problems == []
    assert [[tensor.past for tensor in plan.tensors if tensor.part == "key"] for plan in plans] == [
        ["past.0.key", "past.2.key"],
        ["past.1.key", "past.3.key"],
    ]


def test_patterns_do_not_reach_over_the_parts_of_other_names() -> None:
    """``{part}`` is one word, so the cross attention's ports are not taken for parts of the decoder's own."""
    slots = [f"0.{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value")]
    signature = GraphSignature(
        ports(*((f"past.{slot}", "float32", PAST) for slot in slots)),
        ports(*((f"present.{slot}", "float32", PRESENT) for slot in slots)),
        {},
        {},
    )
    own = {"past": "past.{layer}.decoder.{part}", "present": "present.{layer}.decoder.{part}"}
    cross = {"update": "fixed", "past": "past.{layer}.encoder.{part}", "present": "present.{layer}.encoder.{part}"}
    plans, problems = resolve(signature, own, cross)
    assert problems == []
    assert [tensor.past for tensor in plans[1].tensors] == ["past.0.encoder.key", "past.0.encoder.value"]
    assert faults(signature, {}) == [("kv.no_match", "past"), ("kv.no_match", "present")]


def test_fixed_state_may_come_from_the_outputs_of_another_component() -> None:
    decoder = GraphSignature(ports(("cross.0.key", "float32", PAST)), {}, {}, {})
    encoder = GraphSignature({}, ports(("made.0.key", "float32", PRESENT)), {}, {})
    entry = {"update": "fixed", "past": "cross.{layer}.{part}", "present": "made.{layer}.{part}", "source": "encoder"}
    (plan,), problems = resolve(decoder, entry, others={"encoder": encoder})
    assert problems == []
    assert plan.tensors[0].present == "made.0.key"
    assert plan.source == "encoder"


# --- how axes are told apart ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("past", "declared", "expected"),
    [
        (("b", 2, "past", 4), {}, ("batch", 2, "length", 4)),
        (("b", "past", 2, 4), {}, ("batch", "length", 2, 4)),
        (("b", 2, 512, 4), {}, ("batch", 2, "length", 4)),
        (("b", 512, 2, 4), {"heads": 2}, ("batch", "length", 2, 4)),
        (("b", "x", "y", "z"), {"heads": 2, "head_dim": 4}, ("batch", 2, "length", 4)),
        (("b", "x", "y", 4), {"shape": ("batch", "length", 2, 4)}, ("batch", "length", 2, 4)),
        (("b", "past", 576), {"shape": ("batch", "length", 576)}, ("batch", "length", 576)),
        ((1, 2, "past", 4), {}, ("batch", 2, "length", 4)),
        (None, {"shape": ("batch", 2, "length", 4)}, ("batch", 2, "length", 4)),
    ],
)
def test_axes_of_keys_and_values(past: Shape, declared: dict[str, Any], expected: tuple[int | str, ...]) -> None:
    assert {tensor.shape for tensor in one(graph(past, past), **declared).tensors} == {expected}


@pytest.mark.parametrize(
    ("past", "declared", "expected"),
    [
        (("b", 3, 64), {}, ("batch", 3, 64)),
        ((1, 3, 64), {}, ("batch", 3, 64)),
        ((2, "b", 128), {}, (2, "batch", 128)),
        ((2, 1, 128), {"shape": (2, "batch", 128)}, (2, "batch", 128)),
        (("x", "y"), {"shape": ("batch", 5)}, ("batch", 5)),
    ],
)
def test_axes_of_recurrent_state(past: Shape, declared: dict[str, Any], expected: tuple[int | str, ...]) -> None:
    signature = GraphSignature(ports(("state", "float32", past)), ports(("stateN", "float32", past)), {}, {})
    plan = one(signature, update="replace", past="state", present="stateN", **declared)
    (tensor,) = plan.tensors
    assert (tensor.layer, tensor.part, tensor.shape) == (0, "state", expected)
    assert not plan.grows


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ({"layers": 3}, ("kv.layers", "layers")),
        ({"layers": (0, 1, 2)}, ("kv.layers", "layers")),
        ({"heads": (2,)}, ("kv.layers", "heads")),
        ({"window": (None, None, None)}, ("kv.layers", "window")),
        ({"parts": ("key", "value", "scale")}, ("kv.parts", "parts")),
        ({"past": "pasts.{layer}.{part}"}, ("kv.no_match", "past")),
        ({"present": "presents.{layer}.{part}"}, ("kv.no_match", "present")),
        ({"shape": ("batch", 2, 4)}, ("kv.shape", "shape")),
        ({"shape": ("batch", "length", 4)}, ("kv.shape", "shape")),
        ({"shape": ("batch", 3, "length", 4)}, ("kv.shape", "shape")),
        ({"update": "replace", "shape": ("batch", 2, "length", 4)}, ("kv.shape", "shape")),
    ],
)
def test_a_declaration_the_graph_contradicts(declared: dict[str, Any], problem: tuple[str, str]) -> None:
    assert set(faults(graph(), declared)) == {problem}


@pytest.mark.parametrize(
    ("declared", "code"),
    [({"heads": 4}, "kv.heads"), ({"head_dim": 8}, "kv.head_dim"), ({"dtype": "float16"}, "kv.dtype")],
)
def test_a_contradiction_of_all_tensors_is_one_problem(declared: dict[str, Any], code: str) -> None:
    assert faults(graph(), declared) == [(code, next(iter(declared)))]


@pytest.mark.parametrize(
    ("signature", "code"),
    [
        (graph(PAST, ("batch", 4, "total", 4)), "kv.shape"),
        (graph(PAST, ("batch", 2, "total")), "kv.shape"),
        (graph(("batch", 2, "past"), ("batch", 2, "total")), "kv.unknown"),
        (graph(None, None), "kv.unknown"),
        (graph(("b", "h", "p", "d"), ("b", "h", "t", "d")), "kv.unknown"),
        (graph((8, 2, "past", 4), (8, 2, "total", 4)), "kv.shape"),
    ],
)
def test_a_graph_that_contradicts_itself_or_says_too_little(signature: GraphSignature, code: str) -> None:
    assert {found for found, _ in faults(signature, {})} == {code}


def test_past_and_present_must_have_one_dtype() -> None:
    signature = graph()
    outputs = {name: Port(name, "float16", port.shape) for name, port in signature.outputs.items()}
    mixed = GraphSignature(signature.inputs, outputs, {}, {})
    assert set(faults(mixed, {})) == {("kv.dtype", "present")}


@pytest.mark.parametrize(("side", "key"), [("inputs", "present"), ("outputs", "past")])
def test_a_lonely_port_is_named_on_its_side(side: str, key: str) -> None:
    signature = graph()
    both = {"inputs": dict(signature.inputs), "outputs": dict(signature.outputs)}
    del both[side]["past.1.value" if side == "inputs" else "present.1.value"]
    found = faults(GraphSignature(both["inputs"], both["outputs"], {}, {}), {})
    assert ("kv.unpaired", key) in found


def test_layers_with_different_parts_need_entries_of_their_own() -> None:
    signature = graph(layers=(0,))
    more = graph(layers=(1,), dtypes={"key": "float32"})
    mixed = GraphSignature({**signature.inputs, **more.inputs}, {**signature.outputs, **more.outputs}, {}, {})
    assert faults(mixed, {}) == [("kv.parts", "past")]


def test_a_port_belongs_to_one_entry() -> None:
    assert faults(graph(), {}, {"update": "scatter"}) == [("kv.overlap", "past")]


@pytest.mark.parametrize(
    ("past", "present", "problems"),
    [
        (("b", 2, 512, 4), ("b", 2, 512, 4), set()),
        (("b", 2, "cache", 4), ("b", 2, "cache", 4), set()),
        (("b", 2, 512, 4), ("b", 2, 513, 4), {("kv.shape", "present")}),
    ],
)
def test_scatter_keeps_one_buffer(past: Shape, present: Shape, problems: set[tuple[str, str]]) -> None:
    assert set(faults(graph(past, present), {"update": "scatter"})) == problems


def test_a_recurrent_state_with_two_open_axes_needs_a_shape() -> None:
    signature = GraphSignature(
        ports(("state", "float32", (2, "b", "c"))), ports(("next", "float32", (2, "b", "c"))), {}, {}
    )
    assert faults(signature, {"update": "replace", "past": "state", "present": "next"}) == [("kv.unknown", "past")]


def test_the_nearest_pattern_is_shown() -> None:
    kv = KvSpec(AT, update="append", past="past_key_value.{layer}.{part}", present="present.{layer}.{part}")
    signature = graph()
    inputs = {name.replace("past.", "past_key_values."): port for name, port in signature.inputs.items()}
    problems = Problems()
    resolve_state(
        ComponentSpec(AT, "decoder", model="model.onnx", kv=(kv,)),
        GraphSignature(inputs, signature.outputs, {}, {}),
        problems,
    )
    (problem,) = problems
    assert problem.hint == "did you mean 'past_key_values.{layer}.{part}'?"


# --- two graphs with one state ----------------------------------------------------------------------------------------


def test_the_first_of_two_graphs_need_not_read_state() -> None:
    later = graph()
    first = GraphSignature({"input_ids": later.inputs["input_ids"]}, later.outputs, {}, {})
    (plan,), problems = resolve(first, {}, later=later)
    assert problems == []
    assert plan.tensors == one(later).tensors


def test_two_graphs_have_the_same_ports() -> None:
    found = faults(graph(), {}, later=graph(("batch", 2, "past", 8), ("batch", 2, "total", 8)))
    assert set(found) == {("kv.pair", "model")}


def test_one_fault_of_all_layers_is_one_problem() -> None:
    cache = [(f"past.{layer}.{part}", "float32", ("batch", 2, "past", 4)) for layer in range(30) for part in "kv"]
    present = [(name.replace("past", "present"), dtype, shape) for name, dtype, shape in cache]
    signature = GraphSignature(ports(*cache), ports(*present), {}, {})
    kv = KvSpec(AT, "append", **PATTERNS, heads=9, head_dim=8, dtype="float16")
    problems = Problems()
    resolve_state(ComponentSpec(AT, "decoder", "model.onnx", kv=(kv,)), signature, problems)
    assert sorted(problem.code for problem in problems) == ["kv.dtype", "kv.head_dim", "kv.heads"]
    assert all("(and 59 more tensors)" in problem.message for problem in problems)

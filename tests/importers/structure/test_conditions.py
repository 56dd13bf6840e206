"""What a switch between two decoders chooses, and how many tokens their runs may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from genai_pipeline.importers.structure.conditions import find_switches
from genai_pipeline.importers.structure.graph_facts import read_facts
from genai_pipeline.importers.structure.token_runs import merged_span
from genai_pipeline.testing.graphs.branches import SWITCH, first_graph, later_graph, merged_graph
from genai_pipeline.testing.graphs.caches import AppendCache, Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.kinds import KindOptions, sum_rule
from genai_pipeline.testing.vocabulary import words

DECODER = Decoder(sum_rule(KindOptions(update="append"), words()), AppendCache(), Geometry())
PASTS = [f"past_key_values.{layer}.{part}" for layer in range(2) for part in ("key", "value")]
PRESENTS = [name.replace("past_key_values", "present") for name in PASTS]


def values(kind: int, *names: str) -> list[Any]:
    """Ports of one type and no shape."""
    return [helper.make_tensor_value_info(name, kind, None) for name in names]


def branch(name: str, *nodes: Any) -> Any:
    """A branch that gives the last output of its last node."""
    return helper.make_graph(list(nodes), name, [], values(TensorProto.FLOAT, nodes[-1].output[-1]))


def switched(later: Any, first: Any, *before: Any, condition: str = SWITCH) -> onnx.GraphProto:
    """A graph whose ``present`` one of two branches gives."""
    choose = helper.make_node("If", [condition], ["present"], then_branch=later, else_branch=first)
    ports = [*values(TensorProto.BOOL, SWITCH), *values(TensorProto.FLOAT, "past", "new")]
    return helper.make_graph([*before, choose], "graph", ports, values(TensorProto.FLOAT, "present"))


def concat(name: str) -> Any:
    return branch(name, helper.make_node("Concat", ["past", "new"], [f"{name}_out"], axis=2))


def plain(name: str) -> Any:
    return branch(name, helper.make_node("Identity", ["new"], [f"{name}_out"]))


def attention(name: str, **attributes: Any) -> Any:
    """A branch whose attention writes the state."""
    return branch(name, helper.make_node("Attention", ["new", "past"], ["", f"{name}_out"], **attributes))


def span(tmp_path: Path, graph: onnx.GraphProto) -> dict[str, Any]:
    """How many tokens runs of a merged decoder take."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    onnx.save(model, tmp_path / "model.onnx")
    return merged_span(read_facts(tmp_path, "model.onnx"), SWITCH, ["past"], ["present"])


def test_the_branch_of_first_runs_reads_no_past(tmp_path: Path) -> None:
    merged_graph(DECODER).save(tmp_path / "model.onnx")
    facts = read_facts(tmp_path, "model.onnx")
    assert facts.switches[SWITCH].false_reads == {"input_ids", "attention_mask", "position_ids"}
    assert merged_span(facts, SWITCH, PASTS, PRESENTS) == {"first": "whole", "later": 1}


@pytest.mark.parametrize("make", [first_graph, later_graph])
def test_a_graph_without_conditions_has_no_switch(tmp_path: Path, make: Any) -> None:
    make(DECODER).save(tmp_path / "model.onnx")
    assert read_facts(tmp_path, "model.onnx").switches == {}


def test_a_first_branch_that_reads_the_past_gets_single_tokens(tmp_path: Path) -> None:
    assert span(tmp_path, switched(concat("later"), concat("first"))) == {"first": 1, "later": 1}


def test_a_past_is_read_through_nodes_before_the_condition(tmp_path: Path) -> None:
    before = helper.make_node("Identity", ["past"], ["copied"])
    first = branch("first", helper.make_node("Add", ["copied", "new"], ["first_out"]))
    assert span(tmp_path, switched(concat("later"), first, before)) == {"first": 1, "later": 1}


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (attention("later", is_causal=1), {}),
        (attention("later", is_causal=0), {"first": "whole", "later": 1}),
        (attention("later"), {"first": "whole", "later": 1}),
        (branch("later", helper.make_node("GroupQueryAttention", ["new", "past"], ["", "out"])), {}),
        (concat("later"), {"first": "whole", "later": 1}),
    ],
    ids=["causal", "not causal", "nothing said", "causal by type", "traced"],
)
def test_several_tokens_on_a_past_need_attention_that_is_causal(
    tmp_path: Path, later: Any, found: dict[str, Any]
) -> None:
    assert span(tmp_path, switched(later, plain("first"))) == found


def test_a_condition_may_be_turned_round_and_cast() -> None:
    turns = [
        helper.make_node("Squeeze", [SWITCH], ["scalar"]),
        helper.make_node("Cast", ["scalar"], ["cast"], to=TensorProto.BOOL),
        helper.make_node("Not", ["cast"], ["is_first"]),
    ]
    graph = switched(plain("first"), concat("later"), *turns, condition="is_first")
    assert find_switches(graph)[SWITCH].false_reads == {"new"}


def test_a_condition_on_anything_else_is_no_switch() -> None:
    length = helper.make_node("Greater", ["new", "past"], ["is_first"])
    assert find_switches(switched(concat("later"), plain("first"), length, condition="is_first")) == {}

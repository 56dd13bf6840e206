"""What nodes say of state: what a graph makes longer may not be declared as what stays as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import genai_pipeline as gp
from genai_pipeline.graph.onnx_file import signature_of
from genai_pipeline.testing.packages import write_package

AXES: list[str | int | None] = ["b", 2, "n", 4]


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    """A graph with the inputs ``past_key``, ``past_value`` and ``new``, and two outputs."""
    names = ("past_key", "past_value", "new"), ("key", "value")
    ins, outs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, AXES) for name in side] for side in names)
    return helper.make_model(helper.make_graph(list(nodes), "g", ins, outs))


@pytest.mark.parametrize("update", ["fixed", "in_place", "scatter"])
def test_a_growing_cache_cannot_be_declared_to_keep_its_length(tmp_path: Path, update: str) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["components"]["decoder"]["kv"]["update"] = update

    package = write_package(tmp_path / "p", "kv", update="append", edit=edit)
    _, problems = gp.validate(package.path)
    wrong = [problem for problem in problems if problem.code == "kv.update"]
    assert len(wrong) == 1
    assert wrong[0].severity == "error"
    assert f"update: {update} is declared, but Concat makes 'present." in wrong[0].message
    assert wrong[0].hint == "say update: append"


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
def test_what_agrees_with_the_graph_is_fine(tmp_path: Path, update: str) -> None:
    assert gp.validate(write_package(tmp_path / "p", "kv", update=update).path)[1] == ()


def test_state_that_a_graph_cuts_to_its_own_length_is_written_once(tmp_path: Path) -> None:
    assert gp.validate(write_package(tmp_path / "p", "cross", captured=True).path)[1] == ()


def test_a_concatenation_grows_its_first_part() -> None:
    grown = signature_of(
        model(
            helper.make_node("Cast", ["past_key"], ["as_float"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["as_float", "new"], ["longer"], axis=2),
            helper.make_node("Identity", ["longer"], ["key"]),
            helper.make_node("Concat", ["new", "past_value"], ["value"], axis=2),
        )
    ).grown
    assert grown == {"key": ("past_key", "Concat"), "value": ("new", "Concat")}


@pytest.mark.parametrize(
    ("op", "domain", "before"),
    [("GroupQueryAttention", "com.microsoft", 3), ("MultiHeadAttention", "com.microsoft", 6), ("Attention", "", 4)],
)
def test_attention_with_a_cache_of_its_own_grows_it(op: str, domain: str, before: int) -> None:
    inputs = ["new", "new", "new", *[""] * (before - 3), "past_key", "past_value"]
    node = helper.make_node(op, inputs, ["", "key", "value"], domain=domain)
    assert signature_of(model(node)).grown == {"key": ("past_key", op), "value": ("past_value", op)}


def test_nothing_is_known_of_other_nodes() -> None:
    nodes = [
        helper.make_node("Add", [name, "new"], [out]) for name, out in (("past_key", "key"), ("past_value", "value"))
    ]
    assert signature_of(model(*nodes)).grown == {}

"""Nodes one by one: each operator once, those of subgraphs and functions first, each a valid model of its own."""

from __future__ import annotations

import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.lone_nodes import lone_nodes, nodes_named

MODEL = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
g (float[a, 3] x, bool c) => (float[a, 3] y) {
  w = Constant <value = float[3] {1, 2, 3}> ()
  [sum] s = Add (x, w)
  [again] s2 = Add (s, s)
  [choice] y = If (c) <
    then_branch = t () => (float[a, 3] t) { [twice] t = own.twice (s2) },
    else_branch = e () => (float[a, 3] e) { [less] e = Sub (s2, w) }
  >
}
<domain: "own", opset_import: ["" : 17]>
twice (m) => (d) { [double] d = Mul (m, m) }"""


@pytest.fixture(scope="module")
def model() -> onnx_file.ir.Model:
    return onnx_file.ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(MODEL)))


def test_each_operator_comes_once_and_nested_ones_first(model: onnx_file.ir.Model) -> None:
    nodes = list(lone_nodes(model))
    assert [(node.name, node.nested) for node in nodes] == [
        ("less", True),
        ("double", True),
        ("", False),  # Constant
        ("sum", False),
    ]
    assert [node.told for node in nodes] == [True, False, True, True]  # what a function reads has no type


def test_each_is_a_model_that_runs(model: onnx_file.ir.Model) -> None:
    for node in lone_nodes(model):
        proto = onnx.ModelProto.FromString(node.serialized)
        assert len(proto.graph.node) == 1
        ReferenceEvaluator(proto)


def test_nodes_of_an_operator_have_the_shapes_of_their_weights(model: onnx_file.ir.Model) -> None:
    graph = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[a, 3] x) => (float[a, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { [one] y = MatMul (x, w) }""")
    assert list(nodes_named(onnx_file.ir.serde.deserialize_model(graph), "MatMul")) == [("one", ((3, 2),))]
    assert [name for name, _ in nodes_named(model, "Add")] == ["sum", "again"]

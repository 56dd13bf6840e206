"""FusedMatMul in standard operators gives what ONNX Runtime's own kernel gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from genai_pipeline.backends.threads import POOL
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.fused_matmul import lower_fused_matmul
from genai_pipeline.testing import GraphBuilder

SHAPES = {
    "two matrices": ((3, 4), (5, 4), {"transB": 1}),
    "the left one swapped": ((4, 3), (4, 5), {"transA": 1}),
    "both swapped, scaled": ((4, 3), (5, 4), {"transA": 1, "transB": 1, "alpha": 0.5}),
    "rows of a batch": ((2, 3, 4), (5, 4), {"transB": 1}),
    "batches": ((2, 3, 4), (2, 5, 4), {"transB": 1, "alpha": 2.0}),
    "plain": ((2, 3, 4), (4, 5), {}),
}


@pytest.mark.parametrize(("left", "right", "attributes"), SHAPES.values(), ids=SHAPES)
def test_the_product_is_the_same(left: tuple[int, ...], right: tuple[int, ...], attributes: dict[str, Any]) -> None:
    graph = GraphBuilder("product")
    a, b = graph.input("a", "float32", list(left)), graph.input("b", "float32", list(right))
    product = graph.op("FusedMatMul", a, b, domain="com.microsoft", **attributes)
    graph.output("y", graph.op("Relu", product), "float32", [""] * max(len(left), len(right)))
    model = graph.model()
    rng = np.random.default_rng(1)
    feed = {"a": rng.normal(size=left).astype(np.float32), "b": rng.normal(size=right).astype(np.float32)}
    wanted = run(model, feed)
    assert lower_fused_matmul(model)
    assert all(node.op_type != "FusedMatMul" for node in model.graph)
    np.testing.assert_allclose(run(model, feed), wanted, rtol=1e-5, atol=1e-5)


def run(model: Any, feed: dict[str, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.use_per_session_threads = False
    POOL.ensure(onnxruntime, None)
    serialized = onnx_file.ir.serde.serialize_model(model).SerializeToString()
    session = onnxruntime.InferenceSession(serialized, options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]

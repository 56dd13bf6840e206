"""What nxrt cannot do is found when a graph is loaded, wherever in the graph it lies; what it can do is not refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from genai_pipeline.backends.nxrt import NxrtBackend
from genai_pipeline.backends.nxrt_graph import NxrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.errors import GraphLoadError

HEAD = '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'

BRANCH = """g (float[a, a] x, bool c) => (float[] y) {
  y = If (c) <
    then_branch = t () => (float[] t) { [inner] t = Det (x) },
    else_branch = e () => (float[] e) { e = ReduceSum <keepdims = 0> (x) }
  >
}"""
BODY = """g (float[a, a] x, int64 n, bool c, float[] start) => (float[] y) {
  y = Loop (n, c, start) <
    body = b (int64 i, bool ci, float[] sum) => (bool co, float[] next) {
      co = Identity (ci)
      [inner] d = Det (x)
      next = Add (sum, d)
    }
  >
}"""
NESTED = """g (float[a, a] x, bool c, int64 n, float[] start) => (float[] y) {
  y = Loop (n, c, start) <
    body = b (int64 i, bool ci, float[] sum) => (bool co, float[] next) {
      co = Identity (ci)
      next = If (ci) <
        then_branch = t () => (float[] t) { [inner] t = Det (x) },
        else_branch = e () => (float[] e) { e = Identity (sum) }
      >
    }
  >
}"""
FUNCTION = """g (float[a, a] x, bool c) => (float[] y) {
  y = If (c) <
    then_branch = t () => (float[] t) { t = own.area (x) },
    else_branch = e () => (float[] e) { e = ReduceSum <keepdims = 0> (x) }
  >
}
<domain: "own", opset_import: ["" : 17]>
area (m) => (d) { [inner] d = Det (m) }"""
LATE = """g (float[a] x) => (float[] y) {
  s = Constant <value = int64[2] {5, 5}> ()
  square = Reshape (x, s)
  [inner] y = Det (square)
}"""


def load(folder: Path, text: str) -> NxrtGraph:
    model = onnx.parser.parse_model(HEAD + text)
    path = folder / "model.onnx"
    onnx.save(model, path)
    return NxrtBackend().load(LoadRequest("part", str(path), str(folder)))


@pytest.mark.parametrize("text", [BRANCH, BODY, NESTED, FUNCTION, LATE], ids=["if", "loop", "both", "function", "late"])
def test_an_operator_without_kernel_is_named_wherever_it_lies(tmp_path: Path, text: str) -> None:
    with pytest.raises(GraphLoadError) as found:
        load(tmp_path, text)
    assert found.value.message == "component 'part': nxrt has no kernel for the operator ai.onnx::Det, node inner"
    assert found.value.hint == "use the backend ort"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "g (float[a] x) => (float[a] y) { [texts] z = Cast <to = 8> (x) y = Cast <to = 1> (z) }",
            r"node texts \(Cast\), whatever it is fed: string conversion",
        ),
        (
            "g (int32[a] x) => (int32[a] y) { z = Identity (x) [wave] y = Sin (z) }",
            r"node wave \(Sin\), whatever it is fed: unsupported element type Int32",
        ),
        (
            """g (float[a, b, c] x, int64[k] s) => (float[a, 1, d] y) {
              w = Constant <value = float[1, 1, 2] {1, 1}> ()
              r = Reshape (x, s)
              [filter] y = Conv (r, w)
            }""",
            r"node filter \(Conv\), whatever it is fed: requires matching rank",
        ),
        (
            "g (float[a] x) => (int64[1, n] y) { z = Relu (x) [places] y = NonZero (z) }",
            r"node places \(NonZero\), whose output has a shape that depends on values",
        ),
    ],
    ids=["attribute", "dtype", "rank", "shape"],
)
def test_what_fails_whatever_it_is_fed_is_named(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(GraphLoadError, match=f"component 'part': nxrt cannot run {what}") as found:
        load(tmp_path, text)
    assert found.value.hint == "use the backend ort"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("g (float[a] x) => (float[7] y) { s = Constant <value = int64[1] {7}> () y = Reshape (x, s) }", (7,)),
        (
            "g (float[a, b] x) => (float[a, 3] y) { w = Constant <value = float[3] {0, 0, 0}> () y = Add (x, w) }",
            (2, 3),
        ),
        (
            """g (float[a, b] x) => (float[a, 1] y) {
              w = Constant <value = float[5, 1] {0, 0, 0, 0, 0}> ()
              y = MatMul (x, w)
            }""",
            (2, 5),
        ),
    ],
    ids=["reshape", "add", "product"],
)
def test_a_graph_that_takes_few_sizes_only_is_not_refused(tmp_path: Path, text: str, shape: tuple[int, ...]) -> None:
    graph = load(tmp_path, text)
    binding, x = graph.binding(), np.zeros(shape, np.float32)
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", None)
    binding.run()
    assert not binding.output("y").any()
    graph.close()

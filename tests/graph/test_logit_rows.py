"""The rewrite gives exactly the rows of the full logits, or says why it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.backends.threads import POOL
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.external_data import load_model
from genai_pipeline.graph.logit_rows import LOGIT_ROWS, rewrite_logit_rows
from genai_pipeline.graph.onnx_file import model_bytes
from genai_pipeline.testing.builder import GraphBuilder

H, V, MICROSOFT = 64, 96, "com.microsoft"
Value = Any
Head = Callable[[GraphBuilder, Value], Value]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_with(head: Head, *, hidden_output: bool = False, shape: tuple[Any, ...] = ("b", "s", V)) -> Any:
    graph = GraphBuilder("decoder")
    x = graph.input("x", "float32", ["b", "s", H])
    weight = graph.const(np.ones(H, np.float32), name="norm.weight")
    hidden = graph.op("LayerNormalization", graph.op("Mul", x, 2.0), weight, axis=-1)
    logits = head(graph, hidden)
    if hidden_output:
        graph.output("hidden", hidden, "float32", ["b", "s", H])
    graph.output("logits", logits, "float32", shape)
    return graph.model()


def session(model: Any) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    POOL.ensure(onnxruntime, None)  # once it exists, sessions with threads of their own are refused
    options.use_per_session_threads = False
    return onnxruntime.InferenceSession(model_bytes(model, "/"), options, providers=["CPUExecutionProvider"])


def run(model: Any, feeds: Mapping[str, np.ndarray], output: str = "logits") -> np.ndarray:
    result: np.ndarray = session(model).run([output], dict(feeds))[0]
    return result


def codes(bits: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Packed codes [V, blocks, bytes] and scales of a block-quantised matrix with blocks of 32."""
    rng = np.random.default_rng(seed)
    packed = rng.integers(0, 256, (V, H // 32, 32 * bits // 8), dtype=np.uint8)
    return packed, rng.uniform(0.01, 0.1, (V, H // 32)).astype(np.float32)


def dense(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("MatMul", hidden, random(H, V))


def transposed(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("MatMul", hidden, g.op("Transpose", g.const(random(V, H)), perm=[1, 0]))


def fused_transposed(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("FusedMatMul", hidden, random(V, H), domain=MICROSOFT, transB=1)


def biased(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Add", g.op("MatMul", hidden, random(H, V)), random(V, seed=1))


def full_rank_bias(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Add", random(1, 1, V, seed=1), g.op("MatMul", hidden, random(H, V)))


def softcapped(g: GraphBuilder, hidden: Value) -> Value:
    scaled = g.op("Div", g.op("MatMul", hidden, random(H, V)), 30.0)
    return g.op("Mul", g.op("Tanh", scaled), 30.0)


def through_float16(g: GraphBuilder, hidden: Value) -> Value:
    product = g.op("MatMul", g.cast(hidden, "float16"), random(H, V).astype(np.float16))
    return g.cast(product, "float32")


def log_probabilities(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("LogSoftmax", g.op("MatMul", hidden, random(H, V)), axis=2)


def gemm(g: GraphBuilder, hidden: Value) -> Value:
    flat = g.op("Reshape", hidden, [-1, H])
    product = g.op("Gemm", flat, random(V, H), random(V, seed=1), transB=1)
    sizes = g.op("Concat", g.size(hidden, 0), g.size(hidden, 1), [V], axis=0)
    return g.op("Reshape", product, sizes)


def gemm_of_transposed(g: GraphBuilder, hidden: Value) -> Value:
    weight = g.op("Transpose", g.const(random(V, H)), perm=[1, 0])
    product = g.op("Gemm", g.op("Reshape", hidden, [-1, H]), weight)
    sizes = g.op("Concat", g.size(hidden, 0), g.size(hidden, 1), [V], axis=0)
    return g.op("Reshape", product, sizes)


def quantised(bits: int, level: int = 0) -> Head:
    def head(g: GraphBuilder, hidden: Value) -> Value:
        options = {"N": V, "K": H, "bits": bits, "block_size": 32, "accuracy_level": level}
        return g.op("MatMulNBits", hidden, *codes(bits), domain=MICROSOFT, **options)

    return head


def corrected(g: GraphBuilder, hidden: Value) -> Value:
    """A product of codes, and a small one of per-block input sums: how blocks with an offset stay exact."""
    blocks = g.op("Reshape", hidden, [0, 0, -1, 32])
    sums = g.op("ReduceSum", blocks, [-1], keepdims=0)
    return g.op("Add", quantised(4)(g, hidden), g.op("MatMul", sums, random(H // 32, V, seed=5)))


def weight_only_qdq(g: GraphBuilder, hidden: Value) -> Value:
    weight = np.random.default_rng(0).integers(-128, 127, (H, V)).astype(np.int8)
    return g.op("MatMul", hidden, g.op("DequantizeLinear", weight, np.float32(0.02), np.array(0, np.int8)))


def activation_qdq(g: GraphBuilder, hidden: Value) -> Value:
    scale, zero = np.float32(0.03), np.array(128, np.uint8)
    rounded = g.op("DequantizeLinear", g.op("QuantizeLinear", hidden, scale, zero), scale, zero)
    return weight_only_qdq(g, rounded)


def dynamic_integer(g: GraphBuilder, hidden: Value) -> Value:
    """One scale for the whole run: rows may only be picked once it is known."""
    weight = np.random.default_rng(0).integers(0, 255, (H, V)).astype(np.uint8)
    quantised_hidden, scale, zero = g.ops("DynamicQuantizeLinear", hidden, count=3)
    product = g.op("MatMulInteger", quantised_hidden, weight, zero, np.array(128, np.uint8))
    return g.op("Mul", g.cast(product, "float32"), g.op("Mul", scale, np.float32(0.02)))


EXACT: dict[str, Head] = {
    head.__name__: head
    for head in (
        dense, transposed, fused_transposed, biased, full_rank_bias, softcapped, through_float16, log_probabilities,
        gemm, gemm_of_transposed, weight_only_qdq, activation_qdq, dynamic_integer,
    )
}  # fmt: skip
QUANTISED: dict[str, Head] = {
    "4 bits": quantised(4),
    "8 bits": quantised(8),
    "4 bits, integer": quantised(4, level=4),
    "8 bits, integer": quantised(8, level=4),
    "corrected": corrected,
}
ROWS = {
    "last of each": [4, 9, 14],
    "ragged, right padded": [1, 9, 12],
    "all": list(range(15)),
    "verification": [2, 3, 4, 9, 12, 13, 14],
    "repeated and reversed": [14, 0, 0, 7],
    "one": [7],
    "none": [],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("head", EXACT.values(), ids=EXACT)
def test_rows_equal_those_of_the_full_logits_bit_for_bit(head: Head, rows: list[int]) -> None:
    x = random(3, 5, H, seed=9)
    full = run(model_with(head), {"x": x}).reshape(15, V)
    model = model_with(head)
    assert rewrite_logit_rows(model, "logits").rewritten
    picked = run(model, {"x": x, LOGIT_ROWS: np.array(rows, np.int64)})
    assert picked.shape == (len(rows), V)
    assert np.array_equal(picked, full[rows])


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("head", QUANTISED.values(), ids=QUANTISED)
def test_quantised_heads_round_by_row_count_only(head: Head, rows: list[int]) -> None:
    x = random(3, 5, H, seed=9)
    full = run(model_with(head), {"x": x}).reshape(15, V)
    model = model_with(head)
    assert rewrite_logit_rows(model, "logits").rewritten
    picked = run(model, {"x": x, LOGIT_ROWS: np.array(rows, np.int64)})
    assert np.allclose(picked, full[rows], rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("head", EXACT.values(), ids=EXACT)
def test_exporters_that_write_the_shape_of_every_value_change_nothing(head: Head) -> None:
    ir = onnx_file.ir
    serialized = ir.serde.serialize_model(model_with(head)).SerializeToString()
    model = ir.serde.deserialize_model(onnx.load_from_string(onnx_file.with_shapes(serialized)))
    x = random(3, 5, H, seed=9)
    full = run(model, {"x": x}).reshape(15, V)
    before = len(list(model.graph))
    assert rewrite_logit_rows(model, "logits").rewritten
    assert np.array_equal(run(model, {"x": x, LOGIT_ROWS: np.array([4, 9, 14], np.int64)}), full[[4, 9, 14]])
    if head is softcapped:
        assert len(list(model.graph)) == before + 2  # no node is left over


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 4),
    tokens=st.integers(1, 6),
    seed=st.integers(0, 1000),
    head=st.sampled_from(sorted(EXACT)),
    data=st.data(),
)
def test_any_rows_of_any_batch(batch: int, tokens: int, seed: int, head: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, batch * tokens - 1), max_size=8))
    x = random(batch, tokens, H, seed=seed)
    full = run(model_with(EXACT[head]), {"x": x}).reshape(-1, V)
    model = model_with(EXACT[head])
    assert rewrite_logit_rows(model, "logits").rewritten
    assert np.array_equal(run(model, {"x": x, LOGIT_ROWS: np.array(rows, np.int64)}), full[rows])


def test_the_new_ports_are_those_of_the_backend_protocol() -> None:
    model = model_with(dense)
    rewrite_logit_rows(model, "logits")
    inputs = {value.name: value for value in model.graph.inputs}
    (logits,) = model.graph.outputs
    assert list(inputs) == ["x", LOGIT_ROWS]
    assert inputs[LOGIT_ROWS].dtype == onnx_file.ir.DataType.INT64
    assert len(inputs[LOGIT_ROWS].shape) == 1
    assert logits.name == "logits"
    assert logits.shape[1] == V
    assert len(logits.shape) == 2


def test_nothing_computes_rows_that_nobody_asked_for() -> None:
    model = model_with(softcapped)
    before = len(list(model.graph))
    rewrite_logit_rows(model, "logits")
    assert len(list(model.graph)) == before + 2  # the flattening and the gather
    assert sum(node.op_type == "MatMul" for node in model.graph) == 1


def test_hidden_states_stay_whole_where_they_are_an_output_too() -> None:
    x = random(2, 4, H)
    hidden = run(model_with(dense, hidden_output=True), {"x": x}, "hidden")
    full = run(model_with(dense), {"x": x}).reshape(8, V)
    model = model_with(dense, hidden_output=True)
    assert rewrite_logit_rows(model, "logits").rewritten
    picked, again = session(model).run(["logits", "hidden"], {"x": x, LOGIT_ROWS: np.array([5, 2])})
    assert np.array_equal(picked, full[[5, 2]])
    assert np.array_equal(again, hidden)


def test_other_readers_of_the_logits_keep_the_full_ones() -> None:
    graph = GraphBuilder("decoder")
    hidden = graph.input("hidden", "float32", ["b", "s", H])
    logits = dense(graph, hidden)
    graph.output("best", graph.op("ArgMax", logits, axis=2, keepdims=0), "int64", ["b", "s"])
    graph.output("logits", logits, "float32", ["b", "s", V])
    model = graph.model()
    assert rewrite_logit_rows(model, "logits").rewritten
    x = random(2, 4, H)
    picked, best = session(model).run(["logits", "best"], {"hidden": x, LOGIT_ROWS: np.array([6, 1])})
    assert best.shape == (2, 4)
    assert np.array_equal(picked.argmax(1), best.reshape(8)[[6, 1]])


def test_a_half_precision_head_stays_within_its_rounding() -> None:
    """The runtime computes half precision in float32 and rounds between operators, wherever those are."""

    def build() -> Any:
        graph = GraphBuilder("decoder")
        hidden = graph.op("Mul", graph.input("x", "float16", ["b", "s", H]), np.array(1.5, np.float16))
        product = graph.op("MatMul", hidden, random(H, V).astype(np.float16))
        graph.output("logits", product, "float16", ["b", "s", V])
        return graph.model()

    x = random(2, 3, H).astype(np.float16)
    model = build()
    assert rewrite_logit_rows(model, "logits").rewritten
    picked = run(model, {"x": x, LOGIT_ROWS: np.array([0, 5])})
    assert picked.dtype == np.float16
    assert np.allclose(picked, run(build(), {"x": x}).reshape(6, V)[[0, 5]], atol=0.05)


def test_weights_in_other_files_are_neither_read_nor_moved(tmp_path: Path) -> None:
    onnx_file.save_model(model_with(dense), tmp_path, "model.onnx", "model.onnx.data")
    model = load_model(tmp_path / "model.onnx", tmp_path)
    assert rewrite_logit_rows(model, "logits").rewritten
    data = model_bytes(model, "/")
    assert len(data) < H * V * 4 <= (tmp_path / "model.onnx.data").stat().st_size


def last_position(g: GraphBuilder, hidden: Value) -> Value:
    return dense(g, g.op("Slice", hidden, [-1], [2**31], [1]))


def last_position_then_norm(g: GraphBuilder, hidden: Value) -> Value:
    picked = g.op("Gather", hidden, np.array([-1]), axis=1)
    return dense(g, g.op("LayerNormalization", picked, np.ones(H, np.float32), axis=-1))


def cut_after_the_head(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Slice", dense(g, hidden), [0], [2], [1])


def cumulative(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("CumSum", dense(g, hidden), np.array(1))


def over_positions(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Softmax", dense(g, hidden), axis=1)


def mean_removed(g: GraphBuilder, hidden: Value) -> Value:
    product = dense(g, hidden)
    return g.op("Sub", product, g.op("ReduceMean", product, [1], keepdims=1))


def bias_by_position(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Add", dense(g, hidden), random(1, 5, 1))


def bias_by_row_of_the_batch(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Add", dense(g, hidden), random(3, 1, V))


def no_head(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("Tanh", g.op("Pad", hidden, [0, 0, 0, 0, 0, V - H]))


def weight_from_hidden(g: GraphBuilder, hidden: Value) -> Value:
    return g.op("MatMul", hidden, g.op("Transpose", hidden, perm=[0, 2, 1]))


def folded_positions(g: GraphBuilder, hidden: Value) -> Value:
    flat = g.op("MatMul", g.op("Reshape", hidden, [0, -1, 2 * H]), random(2 * H, 2 * V))
    return g.op("Reshape", flat, [0, -1, V])


REFUSED: dict[str, tuple[Head, str]] = {
    "last position": (last_position, "Slice .* picked positions"),
    "last position, then the norm": (last_position_then_norm, "Gather .* picked positions"),
    "cut after the head": (cut_after_the_head, "Slice .* not known"),
    "running sum": (cumulative, "CumSum .* not known"),
    "softmax over positions": (over_positions, "Softmax .* another axis"),
    "mean over positions": (mean_removed, "ReduceMean .* over positions"),
    "bias by position": (bias_by_position, "Add .* differs by position"),
    "bias by row": (bias_by_row_of_the_batch, "Add .* differs by position"),
    "no head": (no_head, "Pad .* not known"),
    "weight is an activation": (weight_from_hidden, "MatMul .* no weight"),
    "two positions in a row": (folded_positions, "Reshape .* between positions"),
}


@pytest.mark.parametrize(("head", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_graph_whose_rows_depend_on_each_other_is_left_alone(head: Head, reason: str) -> None:
    model = model_with(head)
    before = model_bytes(model, "/")
    result = rewrite_logit_rows(model, "logits")
    assert not result.rewritten
    assert re.search(reason, result.reason), result.reason
    assert model_bytes(model, "/") == before


@pytest.mark.parametrize(
    ("shape", "reason"),
    [(("b", 1, V), "one position only"), (("b", V), "rank 2"), (("b", "s", "k", V), "rank 4")],
)
def test_an_output_without_a_row_for_each_token_is_left_alone(shape: tuple[Any, ...], reason: str) -> None:
    result = rewrite_logit_rows(model_with(dense, shape=shape), "logits")
    assert not result.rewritten
    assert reason in result.reason


def test_an_output_that_is_not_there_is_named() -> None:
    result = rewrite_logit_rows(model_with(dense), "logit")
    assert not result.rewritten
    assert "'logit'" in result.reason


def test_a_graph_that_takes_rows_already_is_left_as_it_is() -> None:
    model = model_with(dense)
    assert rewrite_logit_rows(model, "logits").rewritten
    before = model_bytes(model, "/")
    assert rewrite_logit_rows(model, "logits").rewritten
    assert model_bytes(model, "/") == before


def test_an_input_of_that_name_with_another_meaning_is_refused() -> None:
    graph = GraphBuilder("decoder")
    hidden = graph.input("hidden", "float32", ["b", "s", H])
    mask = graph.input(LOGIT_ROWS, "float32", ["b", "s", 1])
    graph.output("logits", dense(graph, graph.op("Mul", hidden, mask)), "float32", ["b", "s", V])
    result = rewrite_logit_rows(graph.model(), "logits")
    assert not result.rewritten
    assert LOGIT_ROWS in result.reason


def test_an_embedding_at_the_start_of_the_residual_chain_is_no_picked_position() -> None:
    """With a skip normalisation before the head, first inputs lead back to the lookup of the embeddings."""
    g = GraphBuilder("residual")
    ids = g.input("ids", "int64", ["b", "s"])
    hidden = g.op("Gather", random(V, H, seed=5), ids)
    branch = g.op("MatMul", hidden, random(H, H, seed=6))
    hidden = g.op("SkipSimplifiedLayerNormalization", hidden, branch, random(H), domain="com.microsoft", epsilon=1e-5)
    g.output("logits", g.op("MatMul", hidden, random(H, V, seed=7)), "float32", ["b", "s", V])
    model = g.model()
    x = np.array([[1, 2, 3], [0, 1, 1]], np.int64)
    full = run(model, {"ids": x}).reshape(6, V)
    assert rewrite_logit_rows(model, "logits").rewritten
    assert np.array_equal(run(model, {"ids": x, LOGIT_ROWS: np.array([5, 1])}), full[[5, 1]])

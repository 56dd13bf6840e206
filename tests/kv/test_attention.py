"""Real attention over random floats: a row's results have the same bits alone and in any company."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_graph import OrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.testing import GraphBuilder

Q_HEADS, KV_HEADS, SIZE, CAPACITY = 4, 2, 16, 64
LENGTHS = (5, 23, 12)


def in_place_graph() -> GraphBuilder:
    """GroupQueryAttention on q, k, v [b, S, heads * SIZE] over a shared buffer."""
    b = GraphBuilder("gqa")
    q = b.input("q", "float32", ["b", "s", Q_HEADS * SIZE])
    k, v = (b.input(name, "float32", ["b", "s", KV_HEADS * SIZE]) for name in "kv")
    past = [b.input(f"past_{part}", "float32", ["b", KV_HEADS, "c", SIZE]) for part in "kv"]
    lengths = b.input("last_index", "int32", ["b"]), b.input("max_length", "int32", [])
    y, *present = b.ops(
        "GroupQueryAttention", q, k, v, *past, *lengths,
        domain="com.microsoft", count=3, num_heads=Q_HEADS, kv_num_heads=KV_HEADS,
    )  # fmt: skip
    return outputs(b, y, present)


def scatter_graph() -> GraphBuilder:
    """TensorScatter and Attention of opset 24 on the same ports; one new token per row."""
    b = GraphBuilder("static_cache", opset=24)
    q = b.input("q", "float32", ["b", "s", Q_HEADS * SIZE])
    new = [b.input(name, "float32", ["b", "s", KV_HEADS * SIZE]) for name in "kv"]
    past = [b.input(f"past_{part}", "float32", ["b", KV_HEADS, "c", SIZE]) for part in "kv"]
    start, total = b.input("start", "int64", ["b"]), b.input("total", "int64", ["b"])

    def heads(value: Any, count: int) -> Any:
        return b.op("Transpose", b.op("Reshape", value, [0, 0, count, SIZE]), perm=[0, 2, 1, 3])

    present = [
        b.op("TensorScatter", cache, heads(block, KV_HEADS), start, axis=2)
        for cache, block in zip(past, new, strict=True)
    ]
    attended = b.op("Attention", heads(q, Q_HEADS), *present, None, None, None, total)
    y = b.op("Reshape", b.op("Transpose", attended, perm=[0, 2, 1, 3]), [0, 0, Q_HEADS * SIZE])
    return outputs(b, y, present)


def outputs(b: GraphBuilder, y: Any, present: list[Any]) -> GraphBuilder:
    b.output("y", y, "float32", ["b", "s", Q_HEADS * SIZE])
    for part, value in zip("kv", present, strict=True):
        b.output(f"present_{part}", value, "float32", ["b", KV_HEADS, "c", SIZE])
    return b


GRAPHS = {"in_place": in_place_graph, "scatter": scatter_graph}


def state(update: Any) -> StatePlan:
    shape = ("batch", KV_HEADS, "length", SIZE)
    return StatePlan(update, tuple(StateTensor(0, p, f"past_{p}", f"present_{p}", "float32", shape) for p in "kv"))


def tokens(row: int, start: int, stop: int) -> dict[str, NDArray[np.float32]]:
    """The q, k, v of tokens [start, stop) of a row: the same whenever asked."""
    random = np.random.default_rng(row)
    sizes = {"q": Q_HEADS * SIZE, "k": KV_HEADS * SIZE, "v": KV_HEADS * SIZE}
    return {name: random.standard_normal((CAPACITY, n), np.float32)[start:stop] for name, n in sizes.items()}


def step(graph: OrtGraph, pool: KvPool, rows: dict[int, int], starts: list[int], count: int) -> NDArray[Any]:
    """Run the next ``count`` tokens of pool rows, whose content is that of the mapped row, and commit."""
    total = np.array(starts) + count
    feeds: dict[str, NDArray[Any]] = {
        name: np.stack([tokens(content, s, s + count)[name] for content, s in zip(rows.values(), starts, strict=True)])
        for name in "qkv"
    }
    feeds |= {"last_index": (total - 1).astype(np.int32), "max_length": np.array(total.max(), np.int32)}
    feeds |= {"start": np.array(starts, np.int64), "total": total.astype(np.int64)}
    binding = graph.binding()
    for row, end in zip(rows, total, strict=True):
        assert pool.reserve(row, int(end))
    pool.bind("part", binding, list(rows), starts, [count] * len(rows))
    for port in graph.signature.inputs:
        if port in feeds:
            binding.bind_input(port, Buffer.of(feeds[port]))
    binding.bind_output("y", None)
    binding.run()
    pool.commit(list(rows), [int(end) for end in total])
    return binding.output("y").copy()


@pytest.mark.parametrize("update", sorted(GRAPHS))
def test_a_ragged_batch_has_the_bits_of_single_runs(tmp_path: Path, update: str) -> None:
    path = GRAPHS[update]().save(tmp_path / "model.onnx")
    graph = OrtBackend().load(LoadRequest("part", str(path), str(tmp_path)))
    alone = KvPool({"part": [state(update)]}, max_rows=3, capacity=CAPACITY)
    company = KvPool({"part": [state(update)]}, max_rows=3, capacity=CAPACITY)
    for content, length in enumerate(LENGTHS):
        for pool in (alone, company):
            assert pool.open() == content
            for start in range(length):
                step(graph, pool, {content: content}, [start], 1)
    for extra in range(6):
        starts = [length + extra for length in LENGTHS]
        together = step(graph, company, {0: 0, 1: 1, 2: 2}, starts, 1)
        for row in range(3):
            single = step(graph, alone, {row: row}, [starts[row]], 1)
            np.testing.assert_array_equal(single[0].view(np.int32), together[row].view(np.int32))


def test_a_prefill_in_chunks_has_the_bits_of_the_whole(tmp_path: Path) -> None:
    path = in_place_graph().save(tmp_path / "model.onnx")
    graph = OrtBackend().load(LoadRequest("part", str(path), str(tmp_path)))
    pool = KvPool({"part": [state("in_place")]}, max_rows=2, capacity=CAPACITY)
    whole, parts = pool.open(), pool.open()
    assert whole is not None
    assert parts is not None
    expected = step(graph, pool, {whole: 0}, [0], 40)[0]
    chunks = [step(graph, pool, {parts: 0}, [start], 10)[0] for start in range(0, 40, 10)]
    np.testing.assert_array_equal(np.concatenate(chunks).view(np.int32), expected.view(np.int32))

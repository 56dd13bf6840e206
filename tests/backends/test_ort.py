"""The ORT backend with real sessions: bindings, dtypes, rewrites, files, and what it says when something fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_graph import OrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.errors import (
    GraphFileError,
    GraphLoadError,
    GraphRunError,
    OptionError,
    ProviderUnavailableError,
)
from genai_pipeline.testing import GraphBuilder, write_package


def load(folder: Path, graph: GraphBuilder, **options: Any) -> OrtGraph:
    path = folder / "model.onnx"
    graph.save(path)
    return load_file(path, **options)


def load_file(path: Path, **options: Any) -> OrtGraph:
    return OrtBackend().load(LoadRequest("part", str(path), str(path.parent), **options))


def double(dtype: str = "float32") -> GraphBuilder:
    """y = x + x for x [a, 3]."""
    graph = GraphBuilder("double")
    x = graph.input("x", dtype, ["a", 3])
    graph.output("y", graph.op("Add", x, x), dtype, ["a", 3])
    return graph


def test_caller_owned_buffers_are_read_and_written(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", Buffer.of(y))
    binding.run()
    np.testing.assert_array_equal(y, 2 * x)
    x += 1  # the binding is kept: only the content changed
    binding.run()
    np.testing.assert_array_equal(y, 2 * x)
    assert graph.graph_seconds > 0
    assert tuple(graph.placement) == ("cpu",)
    assert graph.notes == ()
    assert (graph.backend, graph.memory) == ("ort", None)


def test_a_buffer_of_another_shape_or_dtype_is_bound_again_at_the_same_address(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    memory, out = np.arange(12, dtype=np.float32), np.zeros(12, np.float32)
    binding = graph.binding()
    for rows in (4, 1, 0, 2):
        size = rows * 3
        binding.bind_input("x", Buffer.of(memory[:size].reshape(rows, 3)))
        binding.bind_output("y", Buffer.of(out[:size].reshape(rows, 3)))
        binding.run()
        np.testing.assert_array_equal(out[:size], 2 * memory[:size])


def test_part_of_a_buffer_is_addressed_by_an_offset(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    memory = np.arange(12, dtype=np.float32).reshape(4, 3)
    base = Buffer.of(memory)
    rows = Buffer(base.address + 2 * 12, (2, 3), memory.dtype, memory)
    binding = graph.binding()
    binding.bind_input("x", rows)
    binding.bind_output("y", rows)  # in place
    binding.run()
    np.testing.assert_array_equal(memory[:, 0], [0, 3, 12, 18])


def test_results_in_memory_of_the_runtime_may_change_shape_and_outlive_the_next_run(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    binding = graph.binding()
    binding.bind_output("y", None)
    kept = []
    for rows in (1, 5, 5, 2):
        x = np.full((rows, 3), rows, np.float32)
        binding.bind_input("x", Buffer.of(x))
        binding.run()
        kept.append(binding.output("y"))
    for rows, result in zip((1, 5, 5, 2), kept, strict=True):
        np.testing.assert_array_equal(result, np.full((rows, 3), 2 * rows, np.float32))


def test_an_output_can_change_between_the_runtimes_memory_and_ours(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    x, y = np.ones((1, 3), np.float32), np.zeros((1, 3), np.float32)
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(x))
    for _ in range(2):
        binding.bind_output("y", None)
        binding.run()
        first = binding.output("y")
        x += 1
        binding.bind_output("y", Buffer.of(y))
        binding.run()
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(first, 2 * (x - 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int8", "bool", "float64"])
def test_dtypes_go_in_and_come_out(tmp_path: Path, dtype: str) -> None:
    graph = GraphBuilder("cast")
    x = graph.input("x", dtype, ["a"])
    graph.output("wide", graph.cast(x, "float32"), "float32", ["a"])
    graph.output("same", graph.cast(graph.cast(x, "float32"), dtype), dtype, ["a"])
    loaded = load(tmp_path, graph)
    binding = loaded.binding()
    values: NDArray[Any] = np.array([1, 0, 1], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    binding.bind_input("x", Buffer.of(values))
    binding.bind_output("wide", None)
    binding.bind_output("same", None)
    binding.run()
    np.testing.assert_array_equal(binding.output("wide"), [1, 0, 1])
    assert binding.output("same").dtype == values.dtype
    np.testing.assert_array_equal(binding.output("same"), values)
    mine = np.zeros_like(values)
    binding.bind_output("same", Buffer.of(mine))
    binding.run()
    np.testing.assert_array_equal(mine, values)
    assert loaded.signature.inputs["x"].dtype == dtype


def test_a_failed_run_names_the_component_and_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    graph = load(tmp_path, double())
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(np.zeros((2, 3), np.float32)))
    binding.bind_output("y", Buffer.of(np.zeros((3, 3), np.float32)))
    with pytest.raises(GraphRunError) as caught:
        binding.run()
    message = caught.value.message
    assert message.startswith("component 'part' failed to run: ")
    assert "{3,3}" in message
    assert "onnxruntime_src" not in message
    assert "ONNXRuntimeError" not in message
    assert "\n" not in message
    assert capfd.readouterr() == ("", "")
    binding.bind_output("y", None)
    binding.run()  # and the binding can be used again
    assert binding.output("y").shape == (2, 3)


def test_a_missing_kernel_is_named_with_node_and_dtype_at_load(tmp_path: Path) -> None:
    graph = GraphBuilder("matmul")
    x = graph.input("x", "float32", [4, 4])
    low = graph.cast(x, "bfloat16")
    product = graph.op("MatMul", low, low)
    product.producer().name = "layers.3/attention/scores"
    graph.output("y", graph.cast(product, "float32"), "float32", [4, 4])
    with pytest.raises(GraphLoadError) as caught:
        load(tmp_path, graph)
    assert "node 'layers.3/attention/scores' (MatMul) on bfloat16 has no kernel in provider cpu" in caught.value.message
    assert "cpu has MatMul for float32, float64, int32, int64" in caught.value.hint


def test_an_unknown_operator_is_refused_with_the_runtimes_own_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder("odd")
    x = graph.input("x", "float32", ["a"])
    graph.output("y", graph.op("Frobnicate", x), "float32", ["a"])
    with pytest.raises(GraphLoadError, match=r"component 'part': the runtime refuses the graph with cpu: .*Frobnicate"):
        load(tmp_path, graph)
    assert capfd.readouterr() == ("", "")


def test_a_provider_that_is_not_here(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="provider 'cuda' is not available"):
        load(tmp_path, double(), providers=("cuda", "cpu"), providers_required=True)
    graph = load(tmp_path, double(), providers=("cuda", "cpu"))
    assert tuple(graph.placement) == ("cpu",)
    (why,) = graph.shortfall.missing.values()
    assert why.startswith("provider 'cuda' is not available; this runtime has ")
    assert graph.notes == (f"component 'part' goes without cuda, using cpu: {why}",)


def test_options_that_the_cpu_provider_would_ignore(tmp_path: Path) -> None:
    assert load(tmp_path, double(), providers=("cpu|use_arena=0",)).placement
    with pytest.raises(OptionError, match="the provider cpu has no option 'use_arenas'") as caught:
        load(tmp_path, double(), providers=("cpu|use_arenas=0",))
    assert caught.value.hint == "did you mean 'use_arena'?"


@pytest.mark.parametrize("key", ["session.use_per_session_threads", "session.intra_op_num_threads"])
def test_settings_that_would_not_hold_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(OptionError, match=f"component 'part' sets '{key}', which cannot be set: all graphs share"):
        load(tmp_path, double(), config=((key, "1"),))


def test_logit_rows_are_bit_equal_to_those_of_all_logits(tmp_path: Path) -> None:
    package = write_package(tmp_path, "pos")
    path = package.path / "model.onnx"
    whole, picked = load_file(path), load_file(path, logits="logits")
    assert not whole.logit_rows
    assert picked.logit_rows
    assert picked.signature.inputs["logit_rows"].dtype == "int64"
    feeds = {
        "input_ids": np.array([[7, 8, 9, 10], [11, 12, 0, 0]], np.int64),
        "attention_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.int64),
        "position_ids": np.array([[0, 1, 2, 3], [0, 1, 2, 3]], np.int64),
    }
    rows = np.array([5, 3, 0], np.int64)
    results = []
    for graph in (whole, picked):
        binding = graph.binding()
        for name in graph.signature.inputs:
            binding.bind_input(name, Buffer.of(rows if name == "logit_rows" else feeds[name]))
        binding.bind_output("logits", None)
        binding.run()
        results.append(binding.output("logits"))
    assert results[1].shape == (3, results[0].shape[2])
    np.testing.assert_array_equal(results[1], results[0].reshape(-1, results[0].shape[2])[rows])


def test_a_graph_whose_logits_cannot_be_picked_still_loads_and_says_why(tmp_path: Path) -> None:
    graph = load(tmp_path, double(), logits="y")
    assert not graph.logit_rows
    assert len(graph.notes) == 1
    assert graph.notes[0].startswith("'part' computes the logits of every token of a run: ")


def weighted() -> GraphBuilder:
    """y = x + a weight that is large enough to lie in a file of its own."""
    graph = GraphBuilder("weighted")
    x = graph.input("x", "float32", ["a", 400])
    graph.output("y", graph.op("Add", x, graph.const(np.arange(400, dtype=np.float32))), "float32", ["a", 400])
    return graph


def result_of(graph: OrtGraph) -> NDArray[Any]:
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(np.zeros((1, 400), np.float32)))
    binding.bind_output("y", None)
    binding.run()
    return binding.output("y")[0]


def test_weights_behind_the_links_of_a_hub_cache_load(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--x" / "blobs", tmp_path / "models--x" / "snapshots" / "rev1"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    weighted().save(blobs / "model.onnx", "model.onnx.data")
    for name in ("model.onnx", "model.onnx.data"):
        (blobs / name).rename(blobs / f"{name}.blob")
        (snapshot / name).symlink_to(Path("../../blobs") / f"{name}.blob")
    np.testing.assert_array_equal(result_of(load_file(snapshot / "model.onnx")), np.arange(400))


def test_weights_outside_the_package_are_refused_before_they_are_opened(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    weighted().save(package / "model.onnx", "model.onnx.data")
    (package / "model.onnx.data").rename(tmp_path / "secret")
    (package / "model.onnx.data").symlink_to(tmp_path / "secret")
    with pytest.raises(GraphFileError, match="outside the package") as caught:
        load_file(package / "model.onnx")
    assert caught.value.problem == "weights.outside"


def test_a_graph_of_an_external_file_loads_and_runs(tmp_path: Path) -> None:
    weighted().save(tmp_path / "model.onnx", "model.onnx.data")
    np.testing.assert_array_equal(result_of(load_file(tmp_path / "model.onnx")), np.arange(400))

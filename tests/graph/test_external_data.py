"""External weights: the rule for where they may lie, whether they are whole, and that honest links load."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from genai_pipeline.backends.threads import POOL
from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph.external_data import (
    LoadableGraph,
    check_external_data,
    load_model,
    loadable_graph,
    scan_external_data,
)
from genai_pipeline.graph.logit_rows import rewrite_logit_rows
from genai_pipeline.graph.onnx_file import save_model
from genai_pipeline.testing import GraphBuilder

SIZE = 16
WEIGHT = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)
X = np.eye(SIZE, dtype=np.float32)[None]


def write(root: Path, weights: int = 1) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    graph = GraphBuilder("decoder")
    value = graph.input("x", "float32", ["b", "s", SIZE])
    for index in range(weights):
        value = graph.op("MatMul", value, graph.const(WEIGHT + index, name=f"w{index}"))
    graph.output("logits", value, "float32", ["b", "s", SIZE])
    return graph.save(root / "model.onnx", "model.onnx.data")


def relocate(path: Path, **entries: str) -> None:
    """Change what the external tensors of a model say about their place."""
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = entries.get(entry.key, entry.value)
    path.write_bytes(model.SerializeToString())


def hub_cache(folder: Path, *, subfolder: str = "") -> Path:
    """A hub cache whose files are links into a blob folder; returns the package folder."""
    repository = folder / "models--org--name"
    snapshot = repository / "snapshots" / "0123abcd" / subfolder
    path = write(snapshot)
    (repository / "blobs").mkdir()
    for number, file in enumerate((path, snapshot / "model.onnx.data")):
        blob = repository / "blobs" / f"{number:064x}"
        file.rename(blob)
        file.symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def run(graph: LoadableGraph, **feeds: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    POOL.ensure(onnxruntime, None)  # once it exists, sessions with threads of their own are refused
    options.use_per_session_threads = False
    if graph.folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", graph.folder)
    source = graph.source if isinstance(graph.source, bytes) else str(graph.source)
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    result: np.ndarray = session.run(None, {"x": X, **feeds})[0]
    return result


def test_a_plain_package_is_loaded_from_its_file(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert check_external_data(path, tmp_path) == ()
    graph = loadable_graph(path, tmp_path)
    assert graph == LoadableGraph(path)
    assert np.array_equal(run(graph)[0], WEIGHT)


@pytest.mark.parametrize("subfolder", ["", "onnx"])
def test_a_hub_cache_loads(tmp_path: Path, subfolder: str) -> None:
    root = hub_cache(tmp_path, subfolder=subfolder)
    assert check_external_data(root / "model.onnx", root) == ()
    assert np.array_equal(run(loadable_graph(root / "model.onnx", root))[0], WEIGHT)


def test_a_hub_cache_is_not_copied_into_memory(tmp_path: Path) -> None:
    root = hub_cache(tmp_path)
    graph = loadable_graph(root / "model.onnx", root)
    assert isinstance(graph.source, bytes)
    assert WEIGHT.tobytes() not in graph.source


def test_a_rewritten_graph_of_a_hub_cache_finds_its_weights(tmp_path: Path) -> None:
    root = hub_cache(tmp_path)
    model = load_model(root / "model.onnx", root)
    assert rewrite_logit_rows(model, "logits").rewritten
    graph = loadable_graph(root / "model.onnx", root, model)
    assert np.array_equal(run(graph, logit_rows=np.array([5, 1])), WEIGHT[[5, 1]])


def test_a_rewritten_graph_with_inline_weights_needs_no_folder(tmp_path: Path) -> None:
    graph = GraphBuilder("decoder")
    x = graph.input("x", "float32", ["b", "s", SIZE])
    graph.output("logits", graph.op("MatMul", x, WEIGHT), "float32", ["b", "s", SIZE])
    path = graph.save(tmp_path / "model.onnx")
    model = load_model(path, tmp_path)
    assert rewrite_logit_rows(model, "logits").rewritten
    loadable = loadable_graph(path, tmp_path, model)
    assert loadable.folder is None
    assert np.array_equal(run(loadable, logit_rows=np.array([3])), WEIGHT[[3]])


def test_a_hub_cache_can_be_saved_as_plain_files(tmp_path: Path) -> None:
    root = hub_cache(tmp_path)
    target = tmp_path / "copy"
    target.mkdir()
    path = save_model(load_model(root / "model.onnx", root), target, "model.onnx", "weights.bin")
    assert np.array_equal(run(loadable_graph(path, target))[0], WEIGHT)


def test_hard_links_are_ordinary_files(tmp_path: Path) -> None:
    path = write(tmp_path / "package")
    os.link(tmp_path / "package" / "model.onnx.data", tmp_path / "other")
    assert check_external_data(path, path.parent) == ()
    assert np.array_equal(run(loadable_graph(path, path.parent))[0], WEIGHT)
    saved = save_model(load_model(path, path.parent), tmp_path, "again.onnx", "again.bin")
    assert np.array_equal(run(loadable_graph(saved, tmp_path))[0], WEIGHT)


def test_a_package_reached_through_a_link_loads(tmp_path: Path) -> None:
    write(tmp_path / "real")
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    root = (tmp_path / "link").resolve()
    assert np.array_equal(run(loadable_graph(root / "model.onnx", root))[0], WEIGHT)


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("../secret", "weights.parent"),
        ("folder/../../secret", "weights.parent"),
        ("/etc/passwd", "weights.absolute"),
        ("C:\\secret", "weights.absolute"),
        ("", "weights.name"),
        ("*/_ORT_MEM_ADDR_/*", "weights.missing"),
        ("absent.bin", "weights.missing"),
        ("folder", "weights.not_a_file"),
        ("out", "weights.outside"),
        ("device", "weights.outside"),
        ("pipe", "weights.not_a_file"),
        ("ring", "weights.unreadable"),
    ],
)
def test_a_location_that_is_refused_names_tensor_and_rule(tmp_path: Path, location: str, code: str) -> None:
    (tmp_path / "secret").write_bytes(bytes(4 * SIZE * SIZE))
    root = tmp_path / "package"
    path = write(root)
    (root / "folder").mkdir()
    (root / "out").symlink_to("../secret")
    (root / "device").symlink_to("/dev/zero")
    (root / "ring").symlink_to("ring")
    os.mkfifo(root / "pipe")
    relocate(path, location=location)
    (fault,) = check_external_data(path, root)
    assert fault.code == code
    assert "'w0'" in fault.message
    with pytest.raises(GraphFileError) as caught:
        loadable_graph(path, root)
    assert caught.value.problem == code
    with pytest.raises(GraphFileError):
        load_model(path, root)


def test_links_into_the_blobs_of_another_cache_are_refused(tmp_path: Path) -> None:
    root = hub_cache(tmp_path / "one")
    other = hub_cache(tmp_path / "two")
    (root / "model.onnx.data").unlink()
    (root / "model.onnx.data").symlink_to((other / "model.onnx.data").resolve())
    assert [fault.code for fault in check_external_data(root / "model.onnx", root)] == ["weights.outside"]


def test_cut_weights_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, weights=6)
    data = tmp_path / "model.onnx.data"
    data.write_bytes(data.read_bytes()[: 4 * SIZE * SIZE + 10])
    (fault,) = check_external_data(path, tmp_path)
    assert fault.code == "weights.cut"
    assert fault.message.startswith("tensors 'w1', 'w2', 'w3' and 2 more: ")
    assert "1034 bytes where 6144 are needed" in fault.message


def test_every_location_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, weights=2)
    model = onnx.load(path, load_external_data=False)
    for tensor, location in zip(model.graph.initializer, ("../up", "gone"), strict=True):
        next(entry for entry in tensor.external_data if entry.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    assert {fault.code for fault in check_external_data(path, tmp_path)} == {"weights.parent", "weights.missing"}


@pytest.mark.parametrize("entries", [{"offset": "-4"}, {"length": "12"}, {"length": "-1"}])
def test_a_range_that_is_not_the_tensors_is_named(tmp_path: Path, entries: dict[str, str]) -> None:
    path = write(tmp_path)
    relocate(path, **entries)
    (fault,) = check_external_data(path, tmp_path)
    assert fault.code == "weights.range"
    assert "'w0'" in fault.message


def test_a_range_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = write(tmp_path)
    relocate(path, offset="many")
    with pytest.raises(GraphFileError) as caught:
        scan_external_data(path, tmp_path)
    assert caught.value.problem == "weights.range"


def test_weights_inside_subgraphs_and_attributes_are_checked_too(tmp_path: Path) -> None:
    path = write(tmp_path)
    model = onnx.load(path, load_external_data=False)
    hidden = onnx.TensorProto()
    hidden.CopyFrom(model.graph.initializer[0])
    hidden.name = "hidden"
    next(entry for entry in hidden.external_data if entry.key == "location").value = "../secret"
    constant = onnx.NodeProto(op_type="Constant", output=["c"])
    constant.attribute.append(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=hidden))
    body = onnx.GraphProto(name="body", node=[constant])
    branch = onnx.NodeProto(op_type="If", input=["x"], output=["z"])
    branch.attribute.append(onnx.AttributeProto(name="then_branch", type=onnx.AttributeProto.GRAPH, g=body))
    model.graph.node.append(branch)
    path.write_bytes(model.SerializeToString())
    (fault,) = check_external_data(path, tmp_path)
    assert "'hidden'" in fault.message

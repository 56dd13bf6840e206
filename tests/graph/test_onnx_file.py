"""Signatures are read without weights, damaged files are named, saved models are whole."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph import onnx_file
from genai_pipeline.graph.onnx_file import read_outline, read_signature, save_model
from genai_pipeline.graph.onnx_wire import KEEP_BYTES, WireError, outline
from genai_pipeline.graph.signature import Port
from genai_pipeline.testing import GraphBuilder

MEGABYTE = 1 << 20


def linear(rows: int = 4, columns: int = 3) -> GraphBuilder:
    graph = GraphBuilder("linear")
    x = graph.input("x", "float32", ["batch", rows])
    weight = graph.const(np.arange(rows * columns, dtype=np.float32).reshape(rows, columns), name="weight")
    graph.output("y", graph.op("MatMul", x, weight), "float32", ["batch", columns])
    return graph


def error_of(path: Path) -> GraphFileError:
    with pytest.raises(GraphFileError) as caught:
        read_signature(path, path.parent)
    return caught.value


def test_ports_have_numpy_names_and_symbolic_sizes(tmp_path: Path) -> None:
    graph = GraphBuilder("ports")
    kinds = ["float32", "float16", "bfloat16", "float64", "int64", "int32", "int8", "uint8", "bool"]
    for kind in kinds:
        value = graph.input(kind, kind, ["batch", 3, None])
        graph.output(f"{kind}.out", graph.op("Identity", value), kind, ["batch", 3, "rows"])
    signature = read_signature(graph.save(tmp_path / "model.onnx"), tmp_path)
    assert signature.inputs == {kind: Port(kind, kind, ("batch", 3, "")) for kind in kinds}
    assert signature.outputs["int8.out"].shape == ("batch", 3, "rows")
    assert signature.inputs["int8"].batched
    assert signature.opset["ai.onnx"] == 21


def test_metadata_and_ports_without_a_rank(tmp_path: Path) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x"], ["y"])],
            "graph",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [])],
        )
    )
    onnx.helper.set_model_props(model, {"characters": "a\nb"})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    signature = read_signature(tmp_path / "model.onnx", tmp_path)
    assert signature.inputs["x"].shape is None
    assert signature.outputs["y"].shape == ()
    assert signature.metadata == {"characters": "a\nb"}


def test_weights_listed_as_inputs_are_no_ports(tmp_path: Path) -> None:
    path = linear().save(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.input.append(onnx.helper.make_tensor_value_info("weight", onnx.TensorProto.FLOAT, [4, 3]))
    onnx.save(model, path)
    assert list(read_signature(path, tmp_path).inputs) == ["x"]


def test_the_window_of_an_attention_is_known_by_its_past_port(tmp_path: Path) -> None:
    graph = GraphBuilder("windows")
    query = graph.input("query", "float32", ["b", "s", 8])
    lengths, total = graph.input("lengths", "int32", ["b"]), graph.input("total", "int32", [1])
    for layer, window in enumerate((16, -1)):
        past = [graph.input(f"past.{layer}.{part}", "float16", ["b", 2, "p", 4]) for part in ("key", "value")]
        wide = [graph.cast(value, "float32") for value in past]
        result = graph.ops(
            "GroupQueryAttention", query, query, query, *wide, lengths, total,
            domain="com.microsoft", count=3, num_heads=2, kv_num_heads=2, local_window_size=window,
        )  # fmt: skip
        graph.output(f"y{layer}", result[0], "float32", ["b", "s", 8])
    signature = read_signature(graph.save(tmp_path / "model.onnx"), tmp_path)
    assert signature.windows == {"past.0.key": 16, "past.0.value": 16, "past.1.key": None, "past.1.value": None}


def test_the_outline_lacks_weights_and_nothing_else(tmp_path: Path) -> None:
    path = linear(512, 512).save(tmp_path / "model.onnx")
    read = read_outline(path, tmp_path)
    assert read.ByteSize() < 1000
    whole = onnx.load(path)
    whole.graph.initializer[0].ClearField("raw_data")
    assert read == whole


def test_reading_a_signature_costs_no_memory_for_weights(tmp_path: Path) -> None:
    path = linear(16, 4).save(tmp_path / "model.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].raw_data = bytes(80 * MEGABYTE)
    path.write_bytes(model.SerializeToString())
    del model
    program = (
        "import resource, sys; from pathlib import Path; import onnx\n"
        "from genai_pipeline.graph.onnx_file import read_signature\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak(); path = Path(sys.argv[1]); read_signature(path, path.parent); print(peak() - before)"
    )
    result = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 20 * 1024  # KiB, of a file of 80 MiB


def test_weights_in_another_file_are_not_opened(tmp_path: Path) -> None:
    path = linear().save(tmp_path / "model.onnx", "model.onnx.data")
    (tmp_path / "model.onnx.data").unlink()
    assert list(read_signature(path, tmp_path).outputs) == ["y"]


@pytest.mark.parametrize(
    ("content", "problem", "words"),
    [
        (b"", "model.empty", "the file is empty"),
        (b"this is not a graph\n", "model.invalid", "not an ONNX file"),
        (b"\x00" * 64, "model.invalid", "at byte 0"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "model.invalid", "Git LFS pointer"),
        (b"\x08\x0a", "model.invalid", "no opset import, no graph"),
        (b"\xff" * 64, "model.invalid", "longer than ten bytes"),
    ],
)
def test_what_is_no_onnx_file_is_named(tmp_path: Path, content: bytes, problem: str, words: str) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    error = error_of(tmp_path / "model.onnx")
    assert error.problem == problem
    assert words in error.message
    assert error.message.startswith("model.onnx")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert error_of(tmp_path / "model.onnx").problem == "model.missing"
    (tmp_path / "folder.onnx").mkdir()
    assert error_of(tmp_path / "folder.onnx").problem == "model.unreadable"


def test_a_file_cut_anywhere_is_named(tmp_path: Path) -> None:
    data = linear(64, 64).save(tmp_path / "model.onnx").read_bytes()
    for length in [*range(1, len(data), 97), len(data) - 1]:
        (tmp_path / "cut.onnx").write_bytes(data[:length])
        assert error_of(tmp_path / "cut.onnx").problem in ("model.truncated", "model.invalid")
    (tmp_path / "cut.onnx").write_bytes(data[: len(data) // 2])
    assert error_of(tmp_path / "cut.onnx").problem == "model.truncated"


def test_a_graph_in_which_casts_go_round_in_a_ring_is_read(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Cast", ["a"], ["b"], to=1),
        onnx.helper.make_node("Cast", ["b"], ["a"], to=1),
        onnx.helper.make_node("GroupQueryAttention", ["x", "", "", "a", "b"], ["y"], domain="com.microsoft"),
    ]
    ports = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "ring", ports[:1], ports[1:]))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    assert list(read_signature(tmp_path / "model.onnx", tmp_path).inputs) == ["x"]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_make_the_walk_fail_otherwise(data: bytes) -> None:
    with contextlib.suppress(WireError):
        outline(data)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_graph_is_an_error_or_a_graph(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.onnx"
        whole = bytearray(linear().save(path).read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(whole)
        with contextlib.suppress(GraphFileError):
            read_signature(path, path.parent)


def test_deep_nesting_is_refused() -> None:
    message = bytes(2 * KEEP_BYTES)  # the innermost graph, which nobody reaches
    for _ in range(80):
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # attribute.g, node.attribute, graph.node
            message = tag + varint(len(message)) + message
    with pytest.raises(WireError, match="nested more than"):
        outline(b"\x3a" + varint(len(message)) + message)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def test_saving_streams_into_two_files_and_leaves_nothing_else(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = save_model(linear(64, 64).model(), tmp_path, "model.onnx", "w.bin", progress=lambda *n: seen.append(n))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model.onnx", "w.bin"]
    assert (tmp_path / "w.bin").stat().st_size == 64 * 64 * 4
    assert seen == [(1, 1)]
    assert [t.location for t in onnx_file.external_tensors(read_outline(path, tmp_path))] == ["w.bin"]


def test_a_failed_save_leaves_the_old_files_as_they_were(tmp_path: Path) -> None:
    path = save_model(linear().model(), tmp_path, "model.onnx", "w.bin")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert path.name in before

    def fail(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_model(linear(64, 64).model(), tmp_path, "model.onnx", "w.bin", progress=fail)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_program_that_reads_no_graph_loads_no_onnx() -> None:
    program = (
        "import sys, genai_pipeline.graph.onnx_file, genai_pipeline.graph.logit_rows\n"
        "print([name for name in sys.modules if name.startswith('onnx')])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

"""Tensors in npy files against the ports that they go to, where the metadata tells neither dtype nor shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.graph.data_files import data_in_files
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.testing import GraphBuilder
from genai_pipeline.testing.packages import write_graph

TEXT = """
schema_version: "1"
name: shift
inputs:
  x: {modality: tensor, dtype: float32, shape: [4]}
outputs: {y: {modality: tensor, value: y}}
data: {table: {file: table.npy}}
components: {add: {model: add.onnx, no_batch_axis: [table]}}
stages:
  - {id: add, run: add, inputs: {x: x.values, table: data.table}, outputs: {y: y}}
"""


@pytest.fixture
def codes(tmp_path: Path) -> Callable[[Any], dict[str, str]]:
    """The problems of a package whose port takes float32 [n, 3, 4], with an array in the file: code -> message."""

    def run(table: Any, shape: tuple[str | int, ...] = ("n", 3, 4), dtype: str = "float32") -> dict[str, str]:
        b = GraphBuilder("add")
        x, given = b.input("x", "float32", ["batch", 4]), b.input("table", dtype, list(shape))
        total = b.op("Cast", b.op("ReduceSum", given, keepdims=0), to=1)
        b.output("y", b.op("Add", x, total), "float32", ["batch", 4])
        write_graph(tmp_path / "add.onnx", b)
        np.save(tmp_path / "table.npy", table)
        (tmp_path / "inference_metadata.yaml").write_text(TEXT)
        _, problems = gp.validate(tmp_path)
        return {problem.code: problem.message for problem in problems}

    return run


@pytest.mark.parametrize("shape", [(0, 3, 4), (5, 3, 4), (3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", ">f4"])
def test_what_fits(codes: Callable[..., dict[str, str]], shape: tuple[int, ...], dtype: str) -> None:
    assert codes(np.zeros(shape, dtype)) == {}


def test_sizes_ranks_and_dtypes_that_do_not_fit(codes: Callable[..., dict[str, str]]) -> None:
    place = "'table' of add.onnx"
    found = codes(np.zeros((1, 0, 4), np.float32))
    assert list(found) == ["port.dims"]
    assert "axis 1 of 'data.table'" in found["port.dims"]
    assert f"axis 1 of {place}" in found["port.dims"]
    assert codes(np.zeros(4, np.float32)) == {"port.rank": f"{place} has rank 3 [n, 3, 4]; 'data.table' has rank 1"}
    assert codes(np.zeros((2, 3, 4), np.complex64)) == {}  # loading names what is no tensor of numbers
    assert codes(np.zeros((2, 3, 4), np.float16), dtype="int64") == {
        "port.dtype": f"{place} takes int64; 'data.table' is float16"
    }
    found = codes(np.zeros((7, 3, 4), np.float32), (6, 3, 4))
    assert "axis 0 of 'data.table'" in found["port.dims"]


def test_a_value_is_as_its_file(spec: Callable[[str], PackageSpec], tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros((2, 0), np.float16))
    (value,) = data_in_files(spec(TEXT)).values()
    assert (value.name, value.dtype, value.shape) == ("data.table", "float16", (2, 0))


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\xff\xffxx", b"\x93NUMPY\x09\x00", b"no array"])
def test_what_cannot_be_read_is_left_to_loading(
    spec: Callable[[str], PackageSpec], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "table.npy").write_bytes(content)
    assert data_in_files(spec(TEXT)) == {}

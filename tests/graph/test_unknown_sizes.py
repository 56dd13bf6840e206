"""Sizes called "?": unknown, each on its own, in signatures and for a runtime that holds names to one size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from genai_pipeline.backends.nxrt import NxrtBackend
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.graph.external_data import load_model
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.graph.signature import size_name
from genai_pipeline.graph.unknown_sizes import forget_unknown_sizes
from genai_pipeline.testing import GraphBuilder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """y = x + x for x of two unknown sizes."""
    graph = GraphBuilder("open")
    x = graph.input("x", "float32", ["rows", "?", "?"])
    graph.output("y", graph.op("Add", x, x), "float32", ["rows", "?", "?"])
    path = tmp_path / "model.onnx"
    graph.save(path)
    return path


@pytest.mark.parametrize(("written", "name"), [("?", ""), ("", ""), ("*", ""), ("n", "n"), ("2n", "2n"), ("é", "é")])
def test_a_name_without_a_letter_is_none(written: str, name: str) -> None:
    assert size_name(written) == name


def test_ports_have_unknown_sizes(file: Path) -> None:
    signature = read_signature(file, file.parent)
    assert signature.inputs["x"].shape == signature.outputs["y"].shape == ("rows", "", "")


def test_named_sizes_stay(file: Path) -> None:
    model = load_model(file, file.parent)
    assert forget_unknown_sizes(model) == 4
    assert forget_unknown_sizes(model) == 0
    (x,) = model.graph.inputs
    assert x.shape is not None
    assert [getattr(dim, "value", dim) for dim in x.shape] == ["rows", None, None]


def test_they_may_differ_on_a_runtime_that_minds_names(file: Path) -> None:
    graph = NxrtBackend().load(LoadRequest("part", str(file), str(file.parent)))
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", None)
    binding.run()
    np.testing.assert_array_equal(binding.output("y"), 2 * x)
    graph.close()

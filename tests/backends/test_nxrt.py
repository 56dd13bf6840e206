"""The backend nxrt: buffers, and what it lacks is named at load. Answers of packages on it: test_exact.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.backends.nxrt import NxrtBackend
from genai_pipeline.backends.nxrt_graph import NxrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.errors import GraphLoadError, GraphRunError, ProviderUnavailableError, RuntimeMissingError
from genai_pipeline.testing import GraphBuilder


def load(folder: Path, graph: GraphBuilder, **options: Any) -> NxrtGraph:
    path = folder / "model.onnx"
    graph.save(path)
    return NxrtBackend().load(LoadRequest("part", str(path), str(folder), **options))


def double(dtype: str = "float32") -> GraphBuilder:
    """y = x + x for x [a, 3]."""
    graph = GraphBuilder("double")
    x = graph.input("x", dtype, ["a", 3])
    graph.output("y", graph.op("Add", x, x), dtype, ["a", 3])
    return graph


def test_buffers_are_read_and_written(tmp_path: Path) -> None:
    graph = load(tmp_path, double())
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(x))
    binding.bind_output("y", Buffer.of(y))
    for _ in range(2):
        binding.run()
        np.testing.assert_array_equal(y, 2 * x)
        x += 1  # the binding is kept: only the content changed
    binding.bind_output("y", None)
    binding.run()
    np.testing.assert_array_equal(binding.output("y"), 2 * x)
    binding.bind_output("y", Buffer.of(np.zeros((1, 3), np.float32)))
    with pytest.raises(GraphRunError, match=r"output 'y' is float32 \(2, 3\) where float32 \(1, 3\) was to come"):
        binding.run()
    assert (graph.backend, graph.memory, graph.placement) == ("nxrt", None, {"cpu": 1})
    assert not graph.abilities.in_place
    assert not graph.abilities.cancels
    assert not list(graph.end_profile())
    assert graph.graph_seconds > 0
    graph.close()


def test_an_operator_without_kernel_is_named_at_load(tmp_path: Path) -> None:
    graph = GraphBuilder("odd")
    x = graph.input("x", "float32", ["a", 3])
    graph.output("y", graph.op("Det", graph.op("MatMul", x, x)), "float32", [])
    with pytest.raises(
        GraphLoadError, match=r"component 'part': nxrt has no kernel for the operator ai.onnx::Det"
    ) as e:
        load(tmp_path, graph)
    assert e.value.hint == "use the backend ort"


def test_an_element_type_that_cannot_cross_is_named_at_load(tmp_path: Path) -> None:
    with pytest.raises(GraphLoadError, match="nxrt takes no bfloat16, which port 'x' has"):
        load(tmp_path, double("bfloat16"))


def test_other_providers_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProviderUnavailableError, match="provider 'cuda' is not available"):
        load(tmp_path, double(), providers=("cuda",), providers_required=True)


def test_what_it_has_no_setting_for_is_noted(tmp_path: Path) -> None:
    graph = load(tmp_path, double(), config=(("session.x", "1"),), profile=str(tmp_path / "p"))
    assert graph.notes == ("nxrt has no setting for session options", "nxrt has no setting for a profile")
    graph.close()


def test_its_absence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nxrt", None)
    with pytest.raises(RuntimeMissingError, match="nxrt is not installed") as found:
        load(tmp_path, double())
    assert "genai-pipeline[nxrt]" in str(found.value.hint)

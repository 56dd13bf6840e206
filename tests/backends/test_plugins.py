"""Plugin providers: how they are written, registered once, and refused by name when they are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.ort_plugins import load_plugin
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.backends.runtime import onnxruntime
from genai_pipeline.errors import ProviderUnavailableError
from genai_pipeline.metadata.provider_names import ProviderSpec
from genai_pipeline.testing import GraphBuilder, write_package


def test_a_distribution_and_its_path_are_one_registration() -> None:
    first = load_plugin(onnxruntime(), ProviderSpec("nxrt-ep-cpu", plugin=True))
    again = load_plugin(onnxruntime(), ProviderSpec(str(first.library), plugin=True))
    assert first.name == again.name == "cpu_ep"
    assert len(first.devices) == len(again.devices) == 1


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad.so"
    bad.write_bytes(b"no library")
    for asked, why in (("/nowhere/x.so", "no file"), ("no-such-dist", "no such"), (str(bad), "does not load")):
        with pytest.raises(ProviderUnavailableError, match=why) as caught:
            load_plugin(onnxruntime(), ProviderSpec(asked, plugin=True))
        assert caught.value.exit_code == 5
        assert "pip install" in caught.value.hint


def chain(folder: Path) -> Path:
    """y = relu(x @ w): two nodes that a plugin on the CPU takes."""
    graph = GraphBuilder("chain")
    x, w = graph.input("x", "float32", ["a", 4]), graph.input("w", "float32", [4, 6])
    graph.output("y", graph.op("Relu", graph.op("MatMul", x, w)), "float32", ["a", 6])
    path = folder / "model.onnx"
    graph.save(path)
    return path


@pytest.mark.parametrize(
    ("providers", "placement"),
    [
        (("plugin:nxrt-ep-cpu", "cpu"), {"cpu_ep": 2}),
        (("plugin:nxrt-ep-cpu",), {"cpu_ep": 2}),
        (("cpu",), {"cpu": 2}),
    ],
)
def test_graphs_run_on_a_plugin_in_the_order_asked(
    tmp_path: Path, providers: tuple[str, ...], placement: dict[str, int]
) -> None:
    path = chain(tmp_path)
    request = LoadRequest("part", str(path), str(tmp_path), providers=providers)
    graph = OrtBackend().load(request)
    assert (dict(graph.placement), graph.notes) == (placement, ())
    x, w = np.arange(-6, 6, dtype=np.float32).reshape(3, 4), np.ones((4, 6), np.float32)
    binding = graph.binding()
    binding.bind_input("x", Buffer.of(x))
    binding.bind_input("w", Buffer.of(w))
    binding.bind_output("y", None)
    binding.run()
    np.testing.assert_array_equal(binding.output("y"), np.maximum(x @ w, 0))


def test_where_nodes_run_is_never_silent(tmp_path: Path) -> None:
    package = write_package(tmp_path, update="append")
    prompt = list(package.vocabulary.encode("bcd"))
    with gp.load(package.path, providers="plugin:nxrt-ep-cpu,cpu") as pipe:
        (graph,) = pipe._assembly.graphs.values()
        total = sum(graph.placement.values())
        on_cpu = graph.placement["cpu"]
        said = [note for note in graph.notes if note.startswith(f"{on_cpu} of the {total} nodes of 'decoder' run")]
        assert len(said) == 1
        tokens = pipe.generate(tokens=prompt, temperature=0, max_new_tokens=8, ignore_eos=True).tokens
        assert list(tokens) == package.expected(prompt, 8)

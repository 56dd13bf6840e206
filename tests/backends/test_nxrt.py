"""The engine on nxrt: closed-form answers batched, chunked, preempted and forked; what it lacks is named at load."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.backends.nxrt import NxrtBackend
from genai_pipeline.backends.nxrt_graph import NxrtGraph
from genai_pipeline.backends.protocol import Buffer, LoadRequest
from genai_pipeline.errors import GraphLoadError, GraphRunError, ProviderUnavailableError, RuntimeMissingError
from genai_pipeline.testing import GraphBuilder, write_package

TEXTS = ("a", "bcd", "efghijk", "l" * 17, "mn" * 20)


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


def together(pipe: gp.Pipeline, prompts: list[list[int]], count: int) -> list[list[int]]:
    ask: dict[str, Any] = {"temperature": 0, "max_new_tokens": count, "ignore_eos": True}
    streams = [pipe.stream(tokens=prompt, **ask) for prompt in prompts]
    return [[event.token for event in stream if event.token is not None] for stream in streams]


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
@pytest.mark.parametrize("chunk", [3, 24])
def test_batched_and_chunked_the_answers_are_exact(tmp_path: Path, update: str, chunk: int) -> None:
    package = write_package(tmp_path, update=update)
    prompts = [list(package.vocabulary.encode(text)) for text in TEXTS]
    with gp.load(package.path, backend="nxrt", max_batch=3, prefill_chunk=chunk) as pipe:
        for _ in range(2):  # the second time from the prefix cache
            assert together(pipe, prompts, 8) == [package.expected(prompt, 8) for prompt in prompts]


@pytest.mark.parametrize("update", ["append", "in_place", "scatter"])
def test_forked_the_answers_are_exact(tmp_path: Path, update: str) -> None:
    package = write_package(tmp_path, update=update)
    prompt = list(package.vocabulary.encode("l" * 17))
    with gp.load(package.path, backend="nxrt", max_batch=4) as pipe:
        stream = pipe.stream(tokens=prompt, n=3, temperature=0, max_new_tokens=8, ignore_eos=True)
        tokens: dict[int, list[int]] = {}
        for event in stream:
            if event.token is not None:
                tokens.setdefault(event.index, []).append(event.token)
    assert list(tokens.values()) == [package.expected(prompt, 8)] * 3


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
    assert (graph.backend, graph.memory, graph.providers, graph.placement) == ("nxrt", None, ("cpu",), {"cpu": 1})
    assert not graph.abilities.in_place
    assert not graph.abilities.cancels
    assert graph.end_profile() is None
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

"""Graphs that draw random numbers: a seed repeats the answer in any company; what no seed could repeat is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_pipeline as gp
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder

OUTPUTS = {"out": {"modality": "tensor", "value": "drawn.y"}, "each": {"modality": "tensor", "value": "each.y"}}
STAGES: list[dict[str, Any]] = [
    {"id": "drawn", "run": "noise", "inputs": {"x": "prompt.tokens"}},
    {"id": "each", "run": "noise", "for_each": "data.rows", "inputs": {"x": "data.rows"}},
]


def noise() -> GraphBuilder:
    """``y`` [b, s] = normal numbers in the shape of ``x`` [b, s]."""
    graph = GraphBuilder("noise")
    x = graph.cast(graph.input("x", "int64", ["b", "s"]), "float32")
    graph.output("y", graph.op("RandomNormalLike", x), "float32", ["b", "s"])
    return graph


def in_a_branch() -> GraphBuilder:
    """The same, drawn inside of an If."""
    graph, then, other = GraphBuilder("noise"), GraphBuilder("then"), GraphBuilder("other")
    x = graph.cast(graph.input("x", "int64", ["b", "s"]), "float32")
    then.output("drawn", then.op("RandomNormal", shape=[1, 2]), "float32", [1, 2])
    other.output("none", other.op("Constant", value_floats=[0.0]), "float32", ["n"])
    condition = graph.op("Greater", graph.op("ReduceSum", x, keepdims=0), 0.0)
    branches = {"then_branch": graph.subgraph(then), "else_branch": graph.subgraph(other)}
    graph.output("y", graph.op("Add", x, graph.op("If", condition, **branches)), "float32", ["b", "s"])
    return graph


def package(folder: Path, graph: GraphBuilder, stages: list[dict[str, Any]], outputs: dict[str, Any]) -> Path:
    def edit(metadata: dict[str, Any]) -> None:
        for key in ("stages", "outputs", "components"):
            metadata[key].clear()
        del metadata["limits"]
        metadata["components"]["noise"] = {"model": "noise.onnx"}
        metadata["data"] = {"rows": {"files": ["row0.npy", "row1.npy"]}}
        metadata["stages"] += stages
        metadata["outputs"] |= outputs

    written = write_package(folder / "package", "kv", edit=edit)
    graph.save(written.path / "noise.onnx")
    for number in range(2):
        np.save(written.path / f"row{number}.npy", np.zeros(50, np.int64))
    return written.path


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[gp.Pipeline]:
    with gp.load(package(tmp_path, noise(), STAGES, OUTPUTS)) as loaded:
        yield loaded


def test_a_seed_repeats_and_stages_and_items_differ(pipe: gp.Pipeline) -> None:
    first = pipe.run({"prompt": "a" * 50}, seed=3)
    pipe.run({"prompt": "b"}, seed=4)
    again = pipe.run({"prompt": "a" * 50}, seed=3)
    drawn: list[NDArray[Any]] = [first["out"], *first["each"]]
    for one, other in zip(drawn, [again["out"], *again["each"]], strict=True):
        np.testing.assert_array_equal(one, other)
    assert drawn[0].shape == drawn[1].shape == (1, 50)
    for index, one in enumerate(drawn):
        assert abs(one.mean()) < 1
        for other in drawn[index + 1 :]:
            assert abs(np.corrcoef(one[0], other[0])[0, 1]) < 0.6
    assert not np.array_equal(pipe.run({"prompt": "a" * 50}, seed=4)["out"], first["out"])


def test_requests_without_a_seed_differ(pipe: gp.Pipeline) -> None:
    assert not np.array_equal(pipe.run({"prompt": "abc"})["out"], pipe.run({"prompt": "abc"})["out"])


def test_company_changes_nothing_even_with_the_same_seed(pipe: gp.Pipeline) -> None:
    alone = pipe.run({"prompt": "abc"}, seed=8)["out"]
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda _: pipe.run({"prompt": "abc"}, seed=8)["out"], range(12)))
    for result in results:
        np.testing.assert_array_equal(result, alone)


def test_what_is_lifted_is_said_and_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    _, problems = gp.validate(package(tmp_path / "fine", noise(), STAGES, OUTPUTS))
    (note,) = [problem for problem in problems if problem.code == "model.random_lifted"]
    assert note.severity == "note"
    assert "(RandomNormalLike)" in note.message
    _, problems = gp.validate(package(tmp_path / "branch", in_a_branch(), STAGES[:1], {"out": OUTPUTS["out"]}))
    (error,) = [problem for problem in problems if problem.code == "model.random"]
    assert error.severity == "error"
    assert "noise.onnx: node 'RandomNormal_0' (RandomNormal) draws random numbers" in error.message
    assert "in a branch or a loop" in error.message


def test_the_body_of_a_decode_loop_may_not_draw(tmp_path: Path) -> None:
    graph = GraphBuilder("noise")
    x = graph.input("x", "int64", ["b", "s"])
    table = graph.const(np.zeros((64, 64), np.float32))
    logits = graph.op("RandomNormalLike", graph.op("Gather", table, x))
    graph.output("logits", logits, "float32", ["b", "s", 64])
    body = [{"run": "noise", "inputs": {"x": "loop.tokens"}, "outputs": {"logits": "logits"}}]
    loop = {"id": "generate", "loop": "decode", "prompt": "prompt.tokens", "body": body, "logits": "logits"}
    outputs = {"text": {"modality": "text", "value": "generate.text"}}
    _, problems = gp.validate(package(tmp_path, graph, [loop], outputs))
    (error,) = [problem for problem in problems if problem.code == "model.random_in_loop"]
    assert "'noise' draws random numbers in node 'RandomNormalLike_1' (RandomNormalLike)" in error.message

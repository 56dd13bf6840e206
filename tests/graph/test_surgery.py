"""Parts of graphs: what lies between named values, with its weights, as a model of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import GraphFileError
from genai_pipeline.graph.onnx_file import model_bytes
from genai_pipeline.graph.surgery import Cut, extract_part, value_behind, value_read_with
from genai_pipeline.testing.builder import GraphBuilder

Run = Callable[..., Any]


def three_steps() -> tuple[Any, str, str]:
    """x -> x + 1 -> (x + 1) * w -> -that, squeezed; the names of the first two results."""
    graph = GraphBuilder("steps")
    x = graph.input("x", "float32", ["b", 1, "n"])
    first = graph.op("Add", x, 1.0)
    second = graph.op("Mul", first, graph.const(np.array(3, np.float32), name="w"))
    graph.output("y", graph.op("Squeeze", graph.op("Neg", second), [1]), "float32", ["b", "n"])
    assert first.name is not None
    assert second.name is not None
    return graph.model(), first.name, second.name


@pytest.fixture
def run(run_graph: Callable[..., list[Any]]) -> Run:
    """Runs a model; gives its one output."""
    return lambda model, **inputs: run_graph(model_bytes(model, "/"), **inputs)[0]


def test_parts_compute_what_the_whole_does(run: Run) -> None:
    model, first, second = three_steps()
    shape = ("batch", 1, "size")
    front = extract_part(model, "front", [Cut("x", "given", "float32", shape)], [Cut(second, "half", "float32", shape)])
    back = extract_part(
        model, "back", [Cut(second, "half", "float32", shape)], [Cut("y", "end", "float32", ("b", "n"))]
    )
    x = np.array([[[1.0, 2.0]]], np.float32)
    half = run(front, given=x)
    np.testing.assert_array_equal(half, (x + 1) * 3)
    np.testing.assert_array_equal(run(back, half=half), run(model, x=x))
    assert list(front.graph.initializers) != []
    assert "w" not in back.graph.initializers
    assert [value.name for value in model.graph.inputs] == ["x"]
    middle = extract_part(model, "m", [Cut(first, "a", "float32", shape)], [Cut(second, "b", "float32", shape)])
    np.testing.assert_array_equal(run(middle, a=x), x * 3)


def test_values_that_are_not_there_or_need_more_are_named() -> None:
    model, first, second = three_steps()
    with pytest.raises(GraphFileError, match="the graph has no value 'nothing'"):
        extract_part(model, "p", [Cut("nothing", "a", "float32", ())], [Cut(second, "b", "float32", ())])
    with pytest.raises(GraphFileError, match=f"'{first}' cannot be cut out"):
        extract_part(model, "p", [Cut(second, "a", "float32", ())], [Cut(first, "b", "float32", ())])


def test_values_are_found_by_what_stands_beside_them() -> None:
    model, first, second = three_steps()
    assert value_read_with(model, "w") == first
    assert value_read_with(model, "v") is None
    behind = value_behind(model, "y", frozenset({"Squeeze", "Neg"}))
    assert behind == second
    assert value_behind(model, "z", frozenset()) is None

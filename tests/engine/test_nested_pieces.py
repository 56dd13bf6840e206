"""Sound of loops in loops: pieces of the innermost loop stream, in order, and make up the whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.testing import write_package
from genai_pipeline.testing.builder import GraphBuilder

ROWS = [np.arange(5) / 16, np.arange(5, 8) / 16]
INNER: dict[str, Any] = {
    "id": "sound",
    "loop": "iterate",
    "over": {"value": "row", "axis": 1, "chunk": 2, "before": 1, "after": 1},
    "body": [{"run": "half", "inputs": {"x": "loop.item"}, "outputs": {"y": "piece"}}],
    "collect": {"wave": {"value": "piece", "axis": 1, "scale": 1}},
}
PICK: dict[str, Any] = {"run": "half", "inputs": {"x": "data.rows[loop.step]"}, "outputs": {"y": "row"}}


def half() -> GraphBuilder:
    """``x`` [b, s] -> ``y`` [b, s] = x / 2."""
    graph = GraphBuilder("half")
    graph.output("y", graph.op("Mul", graph.input("x", "float32", ["b", "s"]), 0.5), "float32", ["b", "s"])
    return graph


@pytest.fixture
def open_pipe(tmp_path: Path) -> Iterator[Any]:
    pipes: list[gp.Pipeline] = []

    def open_(collect: dict[str, Any], value: str) -> gp.Pipeline:
        def edit(metadata: dict[str, Any]) -> None:
            for key in ("stages", "outputs", "components"):
                metadata[key].clear()
            del metadata["limits"]
            metadata["components"]["half"] = {"model": "half.onnx"}
            metadata["data"] = {"rows": {"files": ["row0.npy", "row1.npy"]}}
            outer = {"id": "each", "loop": "iterate", "count": 2, "body": [PICK, INNER], "collect": collect}
            metadata["stages"] += [outer]
            metadata["outputs"]["sound"] = {"modality": "audio", "value": value, "rate": 100}

        package = write_package(tmp_path / f"package{len(pipes)}", "kv", edit=edit)
        half().save(package.path / "half.onnx")
        for number, row in enumerate(ROWS):
            np.save(package.path / f"row{number}.npy", row[None].astype(np.float32))
        pipes.append(gp.load(package.path))
        return pipes[-1]

    yield open_
    for pipe in pipes:
        pipe.close()


def pieces(pipe: gp.Pipeline) -> list[list[float]]:
    return [event.audio.samples.tolist() for event in pipe.stream_run({"prompt": "a"}) if event.audio is not None]


def test_pieces_of_the_inner_loop_stream(open_pipe: Any) -> None:
    pipe = open_pipe({"wave": {"value": "sound.wave", "axis": 1}}, "each.wave")
    whole = [value / 4 for value in (*ROWS[0], *ROWS[1])]
    found = pieces(pipe)
    assert [len(piece) for piece in found] == [2, 2, 1, 2, 1]
    assert [value for piece in found for value in piece] == whole
    assert pipe.run({"prompt": "a"})["sound"].samples.tolist() == whole


def test_what_another_axis_joins_streams_in_steps_of_the_outer_loop(open_pipe: Any) -> None:
    pipe = open_pipe({"wave": {"value": "sound.wave", "axis": -1}}, "each.wave")
    assert [len(piece) for piece in pieces(pipe)] == [5, 3]

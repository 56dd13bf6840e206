"""Tiny graphs with ports as a test wants them: what recognition sees, without weights and without arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.graph.signature import Dim, GraphSignature, Port
from genai_pipeline.importers.structure.graph_facts import GraphFacts, Reader
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import write_graph

Ports = Mapping[str, tuple[str, Sequence[Dim]]]
F32, I64 = "float32", "int64"


def facts_of(
    inputs: Ports,
    outputs: Ports,
    *,
    readers: Mapping[str, set[Reader]] | None = None,
    writers: Mapping[str, set[str]] | None = None,
) -> GraphFacts:
    """Facts of a graph with these ports: name -> (dtype, shape)."""
    signature = GraphSignature(
        {name: Port(name, dtype, tuple(shape)) for name, (dtype, shape) in inputs.items()},
        {name: Port(name, dtype, tuple(shape)) for name, (dtype, shape) in outputs.items()},
        {},
        {},
    )
    return GraphFacts(
        "graph.onnx",
        signature,
        {name: frozenset(found) for name, found in (readers or {}).items()},
        {name: frozenset(found) for name, found in (writers or {}).items()},
    )


def write_ports(path: Path, inputs: Ports, outputs: Ports) -> None:
    """An ONNX file with these ports that computes nothing of sense."""
    graph = GraphBuilder(path.stem)
    for name, (dtype, shape) in inputs.items():
        graph.input(name, dtype, list(shape))
    for name, (dtype, shape) in outputs.items():
        sizes = [dim if isinstance(dim, int) else 1 for dim in shape]
        graph.output(name, graph.op("Expand", graph.const(0, dtype), sizes), dtype, list(shape))
    write_graph(path, graph)


@pytest.fixture
def facts() -> Callable[..., GraphFacts]:
    """``facts(inputs, outputs, readers=, writers=)``."""
    return facts_of


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[[str, Ports, Ports], Any]:
    """``graph_file(name, inputs, outputs)`` writes an ONNX file into the test's folder."""
    return lambda name, inputs, outputs: write_ports(tmp_path / name, inputs, outputs)

"""Backends that tests of packages run on: a third one, ONNX's own reference in Python, and emulated device memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from genai_pipeline.backends import registry
from genai_pipeline.backends.ort import OrtBackend
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Abilities, Buffer, LoadRequest
from genai_pipeline.backends.providers import find_built_in
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.testing.devices import SeparateBackend, SeparateMemory


@dataclass(eq=False)
class ReferenceBinding:
    run_graph: Any
    inputs: dict[str, NDArray[Any]] = field(default_factory=dict)
    outputs: dict[str, NDArray[Any] | None] = field(default_factory=dict)
    results: dict[str, NDArray[Any]] = field(default_factory=dict)

    def bind_input(self, port: str, buffer: Buffer) -> None:
        self.inputs[port] = buffer.array()

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        self.outputs[port] = None if buffer is None else buffer.array()

    def run(self) -> None:
        self.results = dict(zip(self.outputs, self.run_graph(list(self.outputs), self.inputs), strict=True))
        for port, target in self.outputs.items():
            if target is not None:
                target[...] = self.results[port]

    def output(self, port: str) -> NDArray[Any]:
        return self.results[port]

    def cancel(self) -> None: ...
    def resume(self) -> None: ...


@dataclass
class ReferenceGraph:
    signature: GraphSignature
    session: ReferenceEvaluator
    backend: str = "reference"
    abilities: Abilities = field(default_factory=lambda: Abilities(in_place=frozenset()))
    memory: None = None
    placement: dict[str, int] = field(default_factory=lambda: {"python": 0})
    shortfall: Shortfall = field(default_factory=Shortfall)
    notes: tuple[str, ...] = ()
    logit_rows: bool = False
    graph_seconds: float = 0.0
    end_profile: Any = tuple

    def binding(self) -> ReferenceBinding:
        return ReferenceBinding(self.session.run)

    def close(self) -> None: ...


class ReferenceBackend:
    name = "reference"

    def version(self) -> str:
        return str(onnx.__version__)

    def providers(self) -> tuple[str, ...]:
        return ("python",)

    def find(self, asked: str) -> str:
        return find_built_in(asked, self.providers())

    def load(self, request: LoadRequest) -> Any:
        signature = read_signature(Path(request.path), Path(request.root))
        return ReferenceGraph(signature, ReferenceEvaluator(onnx.load(request.path)))


@pytest.fixture
def reference() -> Iterator[tuple[type, ...]]:
    """A backend "reference" that is there during the test, and what it consists of."""
    registry.register("reference", lambda threads: ReferenceBackend())
    yield ReferenceBinding, ReferenceGraph, ReferenceBackend
    registry.unregister("reference")


@pytest.fixture
def emulated() -> Iterator[SeparateMemory]:
    """The memory of a backend "emulated" that is there during the test: ort with a device of its own memory."""
    made = SeparateMemory()
    registry.register("emulated", lambda threads: SeparateBackend(OrtBackend(threads), made))
    yield made
    registry.unregister("emulated")

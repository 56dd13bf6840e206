"""A third runtime, ONNX's own reference in Python, serves packages: what a backend needs to be, in a page of code."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import genai_pipeline as gp
from genai_pipeline.backends import registry
from genai_pipeline.backends.placement import Shortfall
from genai_pipeline.backends.protocol import Abilities, Buffer, LoadRequest
from genai_pipeline.backends.providers import find_built_in
from genai_pipeline.graph.onnx_file import read_signature
from genai_pipeline.graph.signature import GraphSignature
from genai_pipeline.testing import write_package


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


@dataclass
class ReferenceGraph:
    signature: GraphSignature
    session: ReferenceEvaluator
    backend: str = "reference"
    abilities: Abilities = field(default_factory=lambda: Abilities(in_place=frozenset()))
    memory: None = None
    providers: tuple[str, ...] = ("python",)
    placement: dict[str, int] = field(default_factory=dict)
    shortfall: Shortfall = field(default_factory=Shortfall)
    notes: tuple[str, ...] = ()
    logit_rows: bool = False
    graph_seconds: float = 0.0

    def binding(self) -> ReferenceBinding:
        return ReferenceBinding(self.session.run)

    def end_profile(self) -> None: ...
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


def test_it_takes_less_than_sixty_lines() -> None:
    parts: tuple[Any, ...] = (ReferenceBinding, ReferenceGraph, ReferenceBackend)
    assert sum(len(inspect.getsourcelines(part)[0]) for part in parts) < 60


@pytest.fixture(autouse=True)
def reference() -> Iterator[None]:
    registry.register("reference", lambda threads: ReferenceBackend())
    yield
    registry.unregister("reference")


@pytest.mark.parametrize("update", ["append", "scatter"])
def test_batched_chunked_and_from_the_cache_the_answers_are_exact(tmp_path: Path, update: str) -> None:
    package = write_package(tmp_path, update=update)
    prompts = [package.vocabulary.encode(text) for text in ("a", "bcd", "e" * 40)]
    with gp.load(package, backend="reference", max_batch=2, prefill_chunk=16) as pipe:
        for _ in range(2):
            streams = [pipe.stream(tokens=prompt, temperature=0, max_new_tokens=6) for prompt in prompts]
            for stream, prompt in zip(streams, prompts, strict=True):
                assert [event.token for event in stream if event.token is not None] == package.answer(prompt, 6)
        assert pipe.stats()["prefix"]["hits"]


def test_its_name_is_one_of_those_to_choose_from(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    with pytest.raises(gp.errors.OptionError, match="unknown backend 'referense'") as found:
        gp.load(package, backend="referense")
    assert "reference" in str(found.value.hint)

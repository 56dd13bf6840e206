"""One component stage of a loop body with a binding of its own that stays bound from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer, LoadedGraph
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.feeds import BodyFeed, Context, ExpressionFeed, Feed, LoopFeed
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.metadata.expressions import Name
from genai_pipeline.metadata.model import Binding
from genai_pipeline.types import numpy_dtype

LOGIT_ROWS = "logit_rows"


class BodyStage:
    """Feeds a component's ports, runs its graph and hands on its outputs."""

    def __init__(self, stage: StagePlan, graph: LoadedGraph) -> None:
        assert stage.spec.run is not None
        self.id = stage.id
        self.component = stage.spec.run
        self.graph = graph
        self.binding = graph.binding()
        self._feeds = {
            port: _feed(stage, binding, graph.signature.inputs[port]) for port, binding in port_bindings(stage)
        }
        self._outputs = dict(stage.outputs)  # port -> value key
        self._memory = {port: GrowingArray(_dtype(graph.signature.outputs[port])) for port in self._outputs}
        self._bound_inputs: dict[str, tuple[int, ...]] = {}
        self._bound_outputs: dict[str, NDArray[Any] | None] = {}

    def loop_reads(self) -> Iterator[tuple[str, np.dtype[Any]]]:
        """The (value, dtype) pairs of the loop that ports take directly."""
        for feed in self._feeds.values():
            if isinstance(feed, LoopFeed):
                yield feed.name, feed.dtype

    def run(self, context: Context, logit_rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Run once; returns the read outputs by value key, valid until this stage runs again."""
        for port, feed in self._feeds.items():
            self._bind_input(port, feed.buffer(context))
        if self.graph.logit_rows:
            self._bind_input(LOGIT_ROWS, Buffer.of(logit_rows))
        self._bind_outputs()
        self.binding.run()
        return {key: self._result(port) for port, key in self._outputs.items()}

    def _bind_input(self, port: str, buffer: Buffer) -> None:
        self.binding.bind_input(port, buffer)
        self._bound_inputs[port] = buffer.shape

    def _bind_outputs(self) -> None:
        sizes = symbol_sizes(self.graph.signature, self._bound_inputs)
        for port in self._outputs:
            shape = resolve_shape(self.graph.signature.outputs[port], sizes)
            memory = None if shape is None else self._memory[port]
            if shape is not None and memory is not None:
                memory.resize(shape)
            self.binding.bind_output(port, None if memory is None else memory.buffer)
            self._bound_outputs[port] = None if memory is None else memory.array

    def _result(self, port: str) -> NDArray[Any]:
        bound = self._bound_outputs[port]
        return self.binding.output(port) if bound is None else bound


def symbol_sizes(signature: GraphSignature, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Sizes of the symbolic dimensions that bound inputs fix."""
    sizes: dict[str, int] = {}
    for port, shape in shapes.items():
        declared = signature.inputs[port].shape
        pairs = zip(declared or (), shape, strict=False)
        sizes.update({dim: size for dim, size in pairs if isinstance(dim, str) and dim})
    return sizes


def resolve_shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The port's shape in numbers, or None when the graph does not say what its dimensions follow."""
    if port.shape is None:
        return None
    resolved = tuple(dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in port.shape)
    return None if -1 in resolved else resolved


def port_bindings(stage: StagePlan) -> Iterator[tuple[str, Binding]]:
    """(port, binding) of every input; a family ``x.{i}`` bound to a list gives one pair per member."""
    for port, bound in stage.spec.inputs.items():
        if isinstance(bound, tuple):
            for i, member in enumerate(bound):
                yield port.replace("{i}", str(i)).replace("{layer}", str(i)), member
        else:
            yield port, bound


def _feed(stage: StagePlan, binding: Binding, port: Port) -> Feed:
    dtype, rank = numpy_dtype(port.dtype), None if port.shape is None else len(port.shape)
    if isinstance(binding.expr, Name):
        key = stage.reads[binding.expr.text]
        scope, _, local = key.rpartition("/")
        if local.startswith("loop."):
            return LoopFeed(local.removeprefix("loop."), dtype, rank)
        if scope:
            return BodyFeed(key, dtype)
    return ExpressionFeed(binding.expr, stage.reads, dtype, rank, port.batched)


def _dtype(port: Port) -> np.dtype[Any]:
    return numpy_dtype(port.dtype)

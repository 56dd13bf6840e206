"""One component stage of a loop body with a binding of its own that stays bound from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer, LoadedGraph
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.feeds import BodyFeed, Context, ExpressionFeed, Feed, LoopFeed
from genai_pipeline.graph.logit_rows import LOGIT_ROWS
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.metadata.expressions import Name
from genai_pipeline.metadata.model import Binding
from genai_pipeline.types import numpy_dtype


class BodyStage:
    """Feeds a component's ports, runs its graph and hands on its outputs."""

    def __init__(self, stage: StagePlan, graph: LoadedGraph) -> None:
        assert stage.spec.run is not None
        self.id = stage.id
        keys = (key.rpartition("/")[2] for key in stage.reads.values())
        self.loop_names = frozenset(key.removeprefix("loop.") for key in keys if key.startswith("loop."))
        self.component = stage.spec.run
        self.graph = graph
        self.binding = graph.binding()
        self._feeds = {
            port: _feed(stage, binding, graph.signature.inputs[port]) for port, binding in port_bindings(stage)
        }
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the inputs as bound
        outputs, known = graph.signature.outputs, [*self._feeds, *([LOGIT_ROWS] if graph.logit_rows else [])]
        self._outputs = [
            _Output(port, key, GrowingArray(numpy_dtype(outputs[port].dtype)), shape_rule(graph.signature, port, known))
            for port, key in stage.outputs.items()
        ]

    def loop_reads(self) -> Iterator[tuple[str, np.dtype[Any]]]:
        """The (value, dtype) pairs of the loop that ports take directly."""
        for feed in self._feeds.values():
            if isinstance(feed, LoopFeed):
                yield feed.name, feed.dtype

    def gives(self, key: str) -> bool:
        """Whether the value ``key`` is an output of this stage."""
        return self.port_of(key) is not None

    def port_of(self, key: str) -> str | None:
        """The output port that gives the value ``key``."""
        return next((output.port for output in self._outputs if output.key == key), None)

    def run(self, context: Context, logit_rows: Buffer) -> dict[str, NDArray[Any]]:
        """Run once; returns the read outputs by value key, valid until this stage runs again."""
        for port, feed in self._feeds.items():
            buffer = feed.buffer(context)
            self.binding.bind_input(port, buffer)
            self._shapes[port] = buffer.shape
        if self.graph.logit_rows:
            self.binding.bind_input(LOGIT_ROWS, logit_rows)
            self._shapes[LOGIT_ROWS] = logit_rows.shape
        for output in self._outputs:
            self.binding.bind_output(output.port, output.memory_for(self._shapes))
        self.binding.run()
        return {
            output.key: output.memory.array if output.rule is not None else self.binding.output(output.port)
            for output in self._outputs
        }


ShapeRule = tuple[int | tuple[str, int], ...]  # each axis: a fixed size, or the (input port, axis) it equals


@dataclass(frozen=True, slots=True)
class _Output:
    """An output that is read: memory of the engine's own where ``rule`` tells its shape, else of the backend's."""

    port: str
    key: str
    memory: GrowingArray
    rule: ShapeRule | None

    def memory_for(self, inputs: Mapping[str, tuple[int, ...]]) -> Buffer | None:
        """The buffer for a run whose inputs have these shapes."""
        if self.rule is None:
            return None
        self.memory.resize(tuple([axis if isinstance(axis, int) else inputs[axis[0]][axis[1]] for axis in self.rule]))
        return self.memory.buffer


def shape_rule(signature: GraphSignature, output: str, inputs: Iterable[str]) -> ShapeRule | None:
    """How an output's shape follows from those of ``inputs``, or None where the graph does not say."""
    places: dict[int | str, tuple[str, int]] = {}
    for port in inputs:
        for axis, dim in enumerate(signature.inputs[port].shape or ()):
            places.setdefault(dim, (port, axis))
    shape = signature.outputs[output].shape
    if shape is None or any(isinstance(dim, str) and (not dim or dim not in places) for dim in shape):
        return None
    return tuple(dim if isinstance(dim, int) else places[dim] for dim in shape)


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

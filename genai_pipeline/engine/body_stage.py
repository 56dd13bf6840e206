"""One component stage of a loop body with a binding of its own that stays bound from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_pipeline.backends.protocol import Buffer, LoadedGraph
from genai_pipeline.engine.body_values import BatchValue, BodyValue
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.feeds import (
    BodyFeed,
    BodyReads,
    CarryFeed,
    Context,
    ExpressionFeed,
    Feed,
    KeptFeed,
    LoopFeed,
)
from genai_pipeline.graph.logit_rows import LOGIT_ROWS
from genai_pipeline.graph.plan import StagePlan, bound_ports
from genai_pipeline.graph.signature import GraphSignature, Port
from genai_pipeline.metadata.expressions import Name
from genai_pipeline.metadata.model import Binding
from genai_pipeline.types import numpy_dtype


class BodyStage:
    """Feeds a component's ports, runs its graph and hands on its outputs.

    ``settled``: it reads nothing that changes while a sequence runs, so that it runs again only for other rows.
    """

    def __init__(self, stage: StagePlan, graph: LoadedGraph, reads: BodyReads, *, settled: bool) -> None:
        assert stage.spec.run is not None
        self.id = stage.id
        self.loop_names = loop_names(reads)
        self.component = stage.spec.run
        self.graph = graph
        self.binding = graph.binding()
        self._feeds = {
            port: _feed(reads, binding, graph.signature.inputs[port], batched=has_rows(stage, graph, port))
            for port, binding in bound_ports(stage.spec)
        }
        self._settled = settled and not graph.logit_rows
        self._members: tuple[int, ...] = ()  # of the last run
        self._last: dict[str, BodyValue] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # of the inputs as bound
        outputs, known = graph.signature.outputs, [*self._feeds, *([LOGIT_ROWS] if graph.logit_rows else [])]
        self._outputs = [
            _Output(
                outputs[port],
                key,
                GrowingArray(numpy_dtype(outputs[port].dtype)),
                shape_rule(graph.signature, port, known),
            )
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

    def port_of(self, key: str) -> Port | None:
        """The output port that gives the value ``key``."""
        return next((output.port for output in self._outputs if output.key == key), None)

    def run(self, context: Context, logit_rows: Buffer) -> Mapping[str, BodyValue]:
        """Run once; returns the read outputs by value key, valid until this stage runs again. Raises GraphRunError."""
        if self._settled and context.members == self._members:
            return self._last
        for port, feed in self._feeds.items():
            buffer = feed.buffer(context)
            self.binding.bind_input(port, buffer)
            self._shapes[port] = buffer.shape
        if self.graph.logit_rows:
            self.binding.bind_input(LOGIT_ROWS, logit_rows)
            self._shapes[LOGIT_ROWS] = logit_rows.shape
        for output in self._outputs:
            self.binding.bind_output(output.port.name, output.memory_for(self._shapes))
        self._members = ()
        self.binding.run()
        given = {output.key: self._value(output, context) for output in self._outputs}
        if self._settled:
            self._members, self._last = context.members, given
        return given

    def forget(self) -> None:
        """Let go of what is kept from run to run."""
        self._members, self._last = (), {}
        for feed in self._feeds.values():
            feed.forget()

    def _value(self, output: _Output, context: Context) -> BodyValue:
        array = output.memory.array if output.rule is not None else self.binding.output(output.port.name)
        batch = context.batch
        ragged = output.by_token and array.ndim > 1 and array.shape[:2] == (batch.size, batch.width)
        return BatchValue(array, batch.counts if ragged and batch.size > 1 else None)


ShapeRule = tuple[int | tuple[str, int], ...]  # each axis: a fixed size, or the (input port, axis) it equals


@dataclass(frozen=True, slots=True)
class _Output:
    """An output that is read: memory of the engine's own where ``rule`` tells its shape, else of the backend's."""

    port: Port
    key: str
    memory: GrowingArray
    rule: ShapeRule | None

    @property
    def by_token(self) -> bool:
        """Whether axis 1 may have the new tokens: the graph leaves it symbolic."""
        shape = self.port.shape
        return shape is None or (len(shape) > 1 and isinstance(shape[1], str))

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


def has_rows(stage: StagePlan, graph: LoadedGraph, port: str) -> bool:
    """Whether an input has a batch axis: its first one is open, and the component does not say that it is another."""
    return graph.signature.inputs[port].batched and port not in stage.batch_key


def loop_names(reads: BodyReads) -> frozenset[str]:
    """The x of every ``loop.x`` of its own loop that a body stage reads."""
    local = map(reads.local, reads.keys)
    return frozenset(name.removeprefix("loop.") for name in local if name is not None and name.startswith("loop."))


def _feed(reads: BodyReads, binding: Binding, port: Port, *, batched: bool) -> Feed:
    dtype, rank = numpy_dtype(port.dtype), None if port.shape is None else len(port.shape)
    if isinstance(binding.expr, Name):
        local = reads.local(binding.expr.text)
        if local is not None:
            loop_name = local.removeprefix("loop.")
            if loop_name in reads.carried and loop_name != local:
                return CarryFeed(loop_name, dtype, rank)
            if loop_name != local:
                return LoopFeed(loop_name, dtype, rank)
            return BodyFeed(reads.keys[binding.expr.text], dtype, rank)
    feed = ExpressionFeed(binding.expr, reads, dtype, rank, batched)
    return KeptFeed(feed) if reads.around(binding.expr) else feed

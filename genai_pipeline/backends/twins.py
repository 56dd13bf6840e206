"""Graphs that run twice: what one backend computes, others compute again from the same inputs, and a watch is told.

Only the first backend's results go on to the engine. So every comparison is of one graph run: what another backend did
differently in an earlier run is not in its inputs. No more than the inputs and outputs of one run are held at a time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Backend, Binding, Buffer, LoadedGraph, LoadRequest
from genai_pipeline.errors import GraphLoadError, GraphRunError
from genai_pipeline.graph.logit_rows import LOGIT_ROWS

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Side:
    """A backend with the providers it is to use; None: those of the package. ``name`` is for people to read."""

    name: str
    backend: Backend
    providers: tuple[str, ...] | None = None

    def load(self, request: LoadRequest) -> LoadedGraph:
        """Load a graph with the side's own providers. Raises BackendError or PackageError."""
        if self.providers is None:
            return self.backend.load(request)
        alone = len(self.providers) == 1
        return self.backend.load(replace(request, providers=self.providers, providers_required=alone))


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a component by the first side; ``index`` counts the runs of the component from 0.

    ``path``: of the graph that ran, of those that the component has.
    """

    component: str
    path: str
    index: int
    inputs: Arrays
    outputs: Arrays


class Watch(Protocol):
    """Hears of everything that happens; ``side`` is an index, 0 the first. Calls never overlap."""

    def loaded(self, side: int, request: LoadRequest, graph: LoadedGraph) -> None:
        """A side has loaded a component."""

    def refused(self, side: int, request: LoadRequest, error: GraphLoadError) -> None:
        """A side other than the first cannot load a component."""

    def stepped(self, step: Step) -> None:
        """The first side has run a component."""

    def repeated(self, side: int, step: Step, outputs: Arrays) -> None:
        """A side other than the first has repeated a step; ``outputs`` are valid during the call."""

    def failed(self, side: int, step: Step, error: GraphRunError) -> None:
        """A side other than the first could not repeat a step; it is not asked for the graph again."""


class TwinBackend:
    """Loads every graph on all sides. What the first cannot do raises; what others cannot is for the watch to hear."""

    def __init__(self, sides: Sequence[Side], watch: Watch) -> None:
        self._sides = sides
        self._watch = watch
        self._turns = _Turns()

    @property
    def name(self) -> str:
        """The sides' names."""
        return " and ".join(side.name for side in self._sides)

    def version(self) -> str:
        """The version of the first side's runtime. Raises RuntimeMissingError."""
        return self._sides[0].backend.version()

    def providers(self) -> tuple[str, ...]:
        """The providers of the first side's backend. Raises RuntimeMissingError."""
        return self._sides[0].backend.providers()

    def find(self, asked: str) -> str:
        """The name of a provider of the first side's backend. Raises ProviderUnavailableError, OptionError."""
        return self._sides[0].backend.find(asked)

    def load(self, request: LoadRequest) -> LoadedGraph:
        """Load one graph. Raises what the first side raises, and what tells that another is not there at all."""
        graphs: dict[int, LoadedGraph] = {}
        try:
            for index, side in enumerate(self._sides):
                self._load(index, side, request, graphs)
        except BaseException:
            for graph in graphs.values():
                graph.close()
            raise
        return cast(LoadedGraph, _TwinGraph(request, graphs, self._watch, self._turns))

    def _load(self, index: int, side: Side, request: LoadRequest, graphs: dict[int, LoadedGraph]) -> None:
        try:
            graphs[index] = side.load(request if not index else replace(request, profile=None))
        except GraphLoadError as error:
            if not index:
                raise
            self._watch.refused(index, request, error)
        else:
            self._watch.loaded(index, request, graphs[index])


class _Turns:
    """One run of any graph after another, though they come from several threads, counted by component."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: dict[str, Iterator[int]] = {}

    @contextmanager
    def taken(self, component: str) -> Iterator[int]:
        """The number of a run of a component, while no other is compared."""
        with self._lock:
            yield next(self._steps.setdefault(component, itertools.count()))


class _TwinGraph:
    """The first side's graph, but for its bindings."""

    def __init__(self, request: LoadRequest, graphs: Mapping[int, LoadedGraph], watch: Watch, turns: _Turns) -> None:
        self._first = graphs[0]
        self._others = {side: graph for side, graph in graphs.items() if side}
        self._request = request
        self._watch = watch
        self._turns = turns

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)

    def binding(self) -> _TwinBinding:
        """A new, empty binding."""
        return _TwinBinding(self, self._first.binding(), self._first)

    def repeat(self, inputs: Arrays, outputs: Arrays) -> None:
        """Let the other sides run what the first has run."""
        with self._turns.taken(self._request.component) as index:
            step = Step(self._request.component, self._request.path, index, inputs, outputs)
            self._watch.stepped(step)
            for side, graph in list(self._others.items()):
                try:
                    given = _repeated(graph, step, self._request.logits)
                except GraphRunError as error:
                    del self._others[side]
                    graph.close()
                    self._watch.failed(side, step, error)
                else:
                    self._watch.repeated(side, step, given)

    def close(self) -> None:
        """Free the graphs of all sides."""
        self._first.close()
        for graph in self._others.values():
            graph.close()


class _TwinBinding:
    """A binding of the first side; its runs are repeated."""

    def __init__(self, graph: _TwinGraph, inner: Binding, first: LoadedGraph) -> None:
        self._graph = graph
        self._inner = inner
        self._first = first
        self._inputs: dict[str, Buffer] = {}
        self._outputs: dict[str, Buffer | None] = {}

    def bind_input(self, port: str, buffer: Buffer) -> None:
        """Read ``port`` from ``buffer`` from the next run on."""
        self._inputs[port] = buffer
        self._inner.bind_input(port, buffer)

    def bind_output(self, port: str, buffer: Buffer | None) -> None:
        """Write ``port`` into ``buffer``, or into memory of the backend's own (None)."""
        self._outputs[port] = buffer
        self._inner.bind_output(port, buffer)

    def run(self) -> None:
        """Run the first side's graph, then the others' on copies of its inputs, which it may have overwritten."""
        inputs = {port: self._read(buffer) for port, buffer in self._inputs.items()}
        self._inner.run()
        outputs = {
            port: self._inner.output(port) if buffer is None else self._read(buffer)
            for port, buffer in self._outputs.items()
        }
        self._graph.repeat(inputs, outputs)

    def output(self, port: str) -> NDArray[Any]:
        """The first side's value of an output that was bound to None."""
        return self._inner.output(port)

    def cancel(self) -> None:
        """End the first side's run in progress."""
        self._inner.cancel()

    def resume(self) -> None:
        """Let runs go on to their end again."""
        self._inner.resume()

    def _read(self, buffer: Buffer) -> NDArray[Any]:
        if buffer.device == "cpu":
            return buffer.array().copy()
        assert self._first.memory is not None
        return self._first.memory.read(buffer)


def _repeated(graph: LoadedGraph, step: Step, logits: str | None) -> Arrays:
    """What a graph gives for the inputs of a step. Raises GraphRunError, also for other ports than the first's."""
    binding = graph.binding()
    for port, array in _inputs(graph, step, logits):
        binding.bind_input(port, Buffer.of(array))
    for port in step.outputs:
        if port not in graph.signature.outputs:
            raise GraphRunError(f"component '{step.component}' has no output '{port}' there")
        binding.bind_output(port, None)
    binding.run()
    outputs = {port: binding.output(port) for port in step.outputs}
    if logits is not None and logits in outputs:
        outputs[logits] = _as_rows_of(step, outputs[logits], logits)
    return outputs


def _inputs(graph: LoadedGraph, step: Step, logits: str | None) -> Iterator[tuple[str, NDArray[Any]]]:
    """The inputs of a step as a graph takes them: whether it makes only asked-for logits is each side's own affair."""
    for port in graph.signature.inputs:
        if port in step.inputs:
            yield port, step.inputs[port]
        elif port == LOGIT_ROWS and graph.logit_rows and logits is not None and logits in step.outputs:
            yield port, np.arange(int(np.prod(step.outputs[logits].shape[:-1])), dtype=np.int64)
        else:
            raise GraphRunError(f"component '{step.component}' has an input '{port}' there that the first side lacks")
    unknown = step.inputs.keys() - graph.signature.inputs.keys() - {LOGIT_ROWS}
    if unknown:
        raise GraphRunError(f"component '{step.component}' has no input '{min(unknown)}' there")


def _as_rows_of(step: Step, logits: NDArray[Any], port: str) -> NDArray[Any]:
    """Logits [b, S, V] or [n, V] with the rows of the step's own."""
    wanted = step.outputs[port]
    if logits.shape == wanted.shape:
        return logits
    rows = logits.reshape(-1, logits.shape[-1])
    if LOGIT_ROWS in step.inputs and len(rows) != len(wanted):
        return rows[step.inputs[LOGIT_ROWS]]
    return rows.reshape(wanted.shape) if rows.size == wanted.size else logits

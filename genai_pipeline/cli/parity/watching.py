"""What several backends make of the same inputs, run by run: how far they are apart, and where first."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal

from genai_pipeline.cli.parity.differences import Bounds, Difference, difference
from genai_pipeline.errors import GenaiError, GraphLoadError, GraphRunError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from genai_pipeline.backends.protocol import LoadedGraph, LoadRequest
    from genai_pipeline.backends.twins import Arrays, Step
    from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan

Graph = tuple[str, str]  # component and path
Kind = Literal["state", "output", "logits"]
KINDS: Final[tuple[Kind, ...]] = ("state", "output", "logits")  # as a run computes them: logits come of the layers


@dataclass(frozen=True, slots=True)
class PortDifference:
    """The difference at one port in one step, which counts the runs of the component from 0."""

    component: str
    model: str
    port: str
    kind: Kind
    step: int
    difference: Difference

    def to_dict(self) -> dict[str, Any]:
        """The place and the difference as JSON-ready fields."""
        place = {
            "component": self.component,
            "model": self.model,
            "port": self.port,
            "kind": self.kind,
            "step": self.step,
        }
        return {**place, **self.difference.to_dict()}


@dataclass(slots=True)
class ComponentParity:
    """One graph of a component on one side: where its nodes run, how often it was compared, and what came of it."""

    component: str
    model: str  # its file, within its package
    placement: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    runs: int = 0
    worst: dict[Kind, PortDifference] = field(default_factory=dict)
    first: PortDifference | None = None
    error: GenaiError | None = None
    failed_at: int | None = None  # the step in which it could not run; None: it did, or was not loaded

    def to_dict(self) -> dict[str, Any]:
        """The component as JSON-ready fields."""
        return {
            "component": self.component,
            "model": self.model,
            "nodes": dict(self.placement),
            "notes": list(self.notes),
            "runs": self.runs,
            "worst": {kind: self.worst[kind].to_dict() for kind in KINDS if kind in self.worst},
            "first_divergence": None if self.first is None else self.first.to_dict(),
            "error": None if self.error is None else self.error.to_dict(),
            "failed_at": self.failed_at,
        }


class Watcher:
    """Hears of loads and runs, compares each at once, and keeps of it no more than the largest differences."""

    def __init__(self, sides: int, bounds: Bounds) -> None:
        self.found: list[dict[Graph, ComponentParity]] = [{} for _ in range(sides)]
        self.firsts: list[PortDifference | None] = [None] * sides
        self._bounds = bounds
        self._logits: frozenset[tuple[str, str]] = frozenset()
        self._pasts: dict[str, dict[str, str | None]] = {}

    def begin(self, plan: ExecutionPlan) -> None:
        """Learn what is logits, and what state: of what is updated in place, only what a run writes is compared."""
        from genai_pipeline.engine.graphs import logits_ports

        self._logits = frozenset(found for scope in _scopes(plan.root) for found in logits_ports(scope))
        for name, component in plan.components.items():
            self._pasts[name] = {
                tensor.present: tensor.past if state.update in ("in_place", "scatter") else None
                for state in component.states
                for tensor in state.tensors
                if tensor.present is not None
            }

    def loaded(self, side: int, request: LoadRequest, graph: LoadedGraph) -> None:
        """A side has loaded a component."""
        found = ComponentParity(request.component, _model(request), dict(graph.placement), graph.notes)
        self.found[side][request.component, request.path] = found

    def refused(self, side: int, request: LoadRequest, error: GraphLoadError) -> None:
        """A side cannot load a component."""
        found = ComponentParity(request.component, _model(request), error=error)
        self.found[side][request.component, request.path] = found

    def failed(self, side: int, step: Step, error: GraphRunError) -> None:
        """A side could not repeat a step."""
        found = self.found[side][step.component, step.path]
        found.error, found.failed_at = error, step.index

    def stepped(self, step: Step) -> None:
        """The first side has run a component."""
        self.found[0][step.component, step.path].runs += 1

    def repeated(self, side: int, step: Step, outputs: Arrays) -> None:
        """Compare what a side has made of a step."""
        found = self.found[side][step.component, step.path]
        found.runs += 1
        for kind, port in self._ports(step):
            apart = difference(step.outputs[port], outputs[port], self._bounds, self._written(step, port))
            here = PortDifference(step.component, found.model, port, kind, step.index, apart)
            worst = found.worst.get(kind)
            if worst is None or apart.absolute > worst.difference.absolute:
                found.worst[kind] = here
            if apart.diverges and found.first is None:
                found.first = here
                self.firsts[side] = self.firsts[side] or here

    def _ports(self, step: Step) -> Iterator[tuple[Kind, str]]:
        """The outputs of a step as its run computes them."""
        states = self._pasts.get(step.component, {})
        kinds = {
            port: "state" if port in states else "logits" if (step.component, port) in self._logits else "output"
            for port in step.outputs
        }
        yield from ((kind, port) for kind in KINDS for port, own in kinds.items() if own == kind)

    def _written(self, step: Step, port: str) -> NDArray[Any] | None:
        """Where a run has changed a state that is updated in place; None: everything counts."""
        past = self._pasts.get(step.component, {}).get(port)
        if past is None or past not in step.inputs or step.inputs[past].shape != step.outputs[port].shape:
            return None
        written: NDArray[Any] = step.inputs[past] != step.outputs[port]
        return written


def _model(request: LoadRequest) -> str:
    return PurePath(os.path.relpath(request.path, request.root)).as_posix()


def _scopes(scope: ScopePlan) -> Iterator[ScopePlan]:
    """A scope and all within it."""
    yield scope
    for stage in scope.stages:
        if stage.body is not None:
            yield from _scopes(stage.body)

"""Where a request is: runs of scopes, the runs of their stages, and one call of a stage for each item it goes over.

A scope is entered once per request (the root), once per item (a ``for_each`` group) or once per step (an iterate
loop). What is read in it is found in its own values, then in those of the scopes around it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from genai_pipeline.graph.plan import ScopePlan, StagePlan

if TYPE_CHECKING:
    from genai_pipeline.engine.beams import Search
    from genai_pipeline.engine.iteration import Iteration
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence as TokenSequence

Values = Mapping[str, Any]  # by value key; None: not there


class ScopeRun:
    """One entry of a scope: ``own`` are the values it has itself, ``owner`` the call of the stage whose body it is."""

    __slots__ = ("active", "item", "left", "own", "owner", "plan", "request", "values", "waiting")

    def __init__(
        self,
        plan: ScopePlan,
        request: RequestState,
        own: MutableMapping[str, Any],
        owner: Call | None = None,
        item: tuple[int, ...] = (),
    ) -> None:
        self.plan = plan
        self.request = request
        self.owner = owner
        self.own = own
        self.values: Values = own if owner is None else layered(own, owner.values)
        self.item = item  # its place in the lists and steps around it
        self.waiting = {stage.id: stage for stage in plan.stages}  # not started
        self.active: dict[str, StageRun] = {}  # started, and not over
        self.left = False  # whether its owner knows that it is over

    @property
    def over(self) -> bool:
        """Whether all its stages are."""
        return not self.waiting and not self.active


class StageRun:
    """A stage under way in a scope, with one call, or one per item of the list it goes over."""

    __slots__ = ("calls", "listed", "num_open", "scope", "stage")

    def __init__(self, stage: StagePlan, scope: ScopeRun, items: Sequence[Values] | None) -> None:
        self.stage = stage
        self.scope = scope
        around = scope.owner is not None and scope.owner.run.listed
        self.listed: bool = items is not None or around  # one of several, here or further out
        if items is None:
            self.calls = [Call(self, scope.values, scope.item)]
        else:
            self.calls = [Call(self, layered(dict(own), scope.values), (*scope.item, i)) for i, own in enumerate(items)]
        self.num_open = len(self.calls)

    def published(self) -> dict[str, Any]:
        """What the stage gives once all calls are over: lists where it went over a list."""
        keys = self.stage.outputs.values()
        if self.stage.each is None:
            return {key: self.calls[0].outputs.get(key) for key in keys}
        return {key: [call.outputs.get(key) for call in self.calls] for key in keys}


class Call:
    """One execution of a stage: ``values`` are what it can read, ``outputs`` what it gave in the end."""

    __slots__ = ("item", "iteration", "outputs", "run", "search", "sequences", "values")

    def __init__(self, run: StageRun, values: Values, item: tuple[int, ...]) -> None:
        self.run = run
        self.values = values
        self.item = item  # its place in the lists around it
        self.outputs: Values = {}
        self.sequences: list[TokenSequence] = []  # of a decode loop
        self.search: Search | None = None
        self.iteration: Iteration | None = None

    @property
    def stage(self) -> StagePlan:
        """The stage."""
        return self.run.stage

    @property
    def request(self) -> RequestState:
        """Whose call it is."""
        return self.run.scope.request

    @property
    def path(self) -> str:
        """The stage's id in its package: the ids of the stages around it and its own."""
        return stage_path(self.run.scope.plan, self.stage)


def stage_path(scope: ScopePlan, stage: StagePlan) -> str:
    """Names a stage of a package by the scopes that it stands in."""
    return f"{scope.id}/{stage.id}" if scope.id else stage.id


def item_values(stage: StagePlan, scope: ScopePlan, item: Any) -> dict[str, Any]:
    """What the list's name and its fields mean for one item of a ``for_each``."""
    path = stage_path(scope, stage)
    inner = f"{path}/{stage.spec.for_each}" if stage.spec.kind == "group" else f"{path}[]/{stage.spec.for_each}"
    fields = item if isinstance(item, Mapping) else {}
    return {inner: item, **{f"{inner}.{name}": value for name, value in fields.items()}}


def layered(own: MutableMapping[str, Any], around: Values) -> Values:
    """Values over those of the scopes around."""
    outer = around.maps if isinstance(around, ChainMap) else [around]
    return ChainMap(own, *outer)  # only the first one is ever written to

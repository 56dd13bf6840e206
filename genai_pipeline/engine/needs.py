"""What the stages of a scope wait for, which values a stage cannot do without, and when a value may go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from genai_pipeline.graph.plan import ScopePlan, StagePlan, bound_ports, key_of
from genai_pipeline.graph.uses import STATE_PREFIX
from genai_pipeline.metadata.expressions import names, optional_names
from genai_pipeline.metadata.model import Binding
from genai_pipeline.metadata.operations import OPERATIONS

if TYPE_CHECKING:
    from genai_pipeline.engine.scope_run import Values


class ScopeNeeds:
    """Of the stages of one scope: the keys of that scope which a stage and what is below it read."""

    def __init__(self, scope: ScopePlan) -> None:
        made = {key for stage in scope.stages for key in stage.outputs.values()}
        self._of = {stage.id: frozenset(key for key in _reads(stage) if key in made) for stage in scope.stages}
        self._freed = {key for stage in scope.stages for key in stage.drop_after}

    def of(self, stage: str) -> frozenset[str]:
        """Keys that must be there before the stage can start: those that other stages of the scope make."""
        return self._of[stage]

    def freed_by(self, stage: str, pending: Iterable[str]) -> Iterator[str]:
        """Keys that the stage read, and that none of the ``pending`` stages needs any more."""
        others = [self._of[id] for id in pending]
        for key in self._of[stage] & self._freed:
            if not any(key in needs for needs in others):
                yield key


def _reads(stage: StagePlan) -> Iterator[str]:
    """Keys that a stage reads, the stages below it too; outputs that state starts as (``from``) among them."""
    yield from stage.reads.values()
    if stage.each is not None:
        yield stage.each
    if stage.body is not None:
        yield from stage.body.reads.values()
        for inner in stage.body.stages:
            yield from _reads(inner)


def misses(stage: StagePlan, values: Values) -> bool:
    """Whether a value that the stage cannot do without is not there (None)."""
    given = (key for key in _state_keys(stage) if key in values)
    return any(values[key_of(stage.reads, name)] is None for name in _needed_names(stage)) or any(
        values[key] is None for key in given
    )


def _state_keys(stage: StagePlan) -> Iterator[str]:
    """Outputs of other components that the state of a loop starts as."""
    for inner in stage.body.stages if stage.spec.decode is not None and stage.body is not None else ():
        yield from (key for name, key in inner.reads.items() if name.startswith(STATE_PREFIX))


def _needed_names(stage: StagePlan) -> Iterator[str]:
    for binding in _needed_bindings(stage):
        yield from names(binding.expr) - optional_names(binding.expr)


def _needed_bindings(stage: StagePlan) -> Iterator[Binding]:
    spec = stage.spec
    if spec.op is not None:
        optional = {port.name for port in OPERATIONS[spec.op].inputs if port.optional}
        yield from (binding for port, binding in bound_ports(stage.spec) if port not in optional)
    elif spec.run is not None:
        yield from (binding for _, binding in bound_ports(stage.spec))
    elif spec.decode is not None:
        yield from (binding for binding in [spec.decode.prompt] if binding is not None)
    elif spec.iterate is not None:
        yield from (carry.initial for carry in spec.iterate.carry.values())
        if spec.iterate.over is not None:
            yield spec.iterate.over.value

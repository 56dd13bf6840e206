"""Which decode loops can speculate, and how their rows share runs: from the plan alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from genai_pipeline.errors import OptionError
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan, StatePlan


def check_loop(plan: ExecutionPlan, stage: StagePlan) -> None:
    """Raises OptionError where a loop cannot verify drafts: what was drafted wrongly could not be taken back."""
    reason = next(_obstacles(plan, stage), None)
    if reason is not None:
        raise OptionError(
            f"the loop '{stage.id}' of '{plan.package.name}' cannot speculate: {reason}",
            param="draft",
            hint='load it with draft="off"',
        )


def runs_alone(plan: ExecutionPlan, stage: StagePlan, alone_on_past: Mapping[str, frozenset[str]]) -> bool:
    """Whether a row with drafts needs a run of its own.

    ``alone_on_past``: by component, the updates with which its graph takes several tokens on top of a past for one row
    only. States that pad on different sides cannot hold rows of different lengths in one run either.
    """
    updates = {state.update for state in _states(plan, stage)}
    limited = any(
        state.update in alone_on_past[name] for name in _components(stage) for state in plan.components[name].states
    )
    return limited or {"append", "scatter"} <= updates


def _obstacles(plan: ExecutionPlan, stage: StagePlan) -> Iterator[str]:
    decode, body = stage.spec.decode, stage.body
    assert decode is not None
    assert body is not None
    if decode.tokens is not None:
        yield "its body chooses the tokens"
    if decode.carry:
        yield "it carries values from step to step"
    if any(inner.after_choice for inner in body.stages):
        yield "it has stages that run once the token is chosen"
    if any(state.update == "replace" for state in _states(plan, stage)):
        yield "its state is one piece that cannot go back by single tokens"
    if any(plan.components[name].spec.span is not None for name in _components(stage)):
        yield "a component limits the tokens of a run"


def _states(plan: ExecutionPlan, stage: StagePlan) -> Iterable[StatePlan]:
    return [state for name in _components(stage) for state in plan.components[name].states]


def _components(stage: StagePlan) -> list[str]:
    assert stage.body is not None
    return [inner.spec.run for inner in stage.body.stages if inner.spec.run is not None]

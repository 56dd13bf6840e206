"""Which loops can speculate, and which of their rows do so alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from genai_pipeline.checking import check_package
from genai_pipeline.errors import OptionError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.metadata.model import CarrySpec
from genai_pipeline.speculative.loops import check_loop, runs_alone
from genai_pipeline.testing import write_package


def plan_of(path: Path, kind: str, **options: str) -> ExecutionPlan:
    plan = check_package(write_package(path, kind, **options).path).plan
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    ("kind", "options", "alone"),
    [
        ("kv", {"update": "in_place"}, True),
        ("kv", {"update": "append"}, False),
        ("kv", {"update": "scatter"}, False),
        ("table", {}, False),
    ],
)
def test_loops_whose_state_has_tokens_can_speculate(
    tmp_path: Path, kind: str, options: dict[str, str], alone: bool
) -> None:
    plan = plan_of(tmp_path, kind, **options)
    check_loop(plan, plan.stage("generate"))
    limits = dict.fromkeys(plan.components, frozenset({"in_place"}))
    assert runs_alone(plan, plan.stage("generate"), limits) == alone
    assert not runs_alone(plan, plan.stage("generate"), dict.fromkeys(plan.components, frozenset())) or alone


def test_recurrent_state_cannot_go_back(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "recurrent")
    with pytest.raises(OptionError, match="'generate' of 'tiny-recurrent' cannot speculate: its state") as caught:
        check_loop(plan, plan.stage("generate"))
    assert caught.value.param == "draft"


def test_what_happens_after_the_choice_cannot_go_back(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "table")
    stage = plan.stage("generate")
    assert stage.body is not None
    assert stage.spec.decode is not None
    late = replace(stage.body, stages=tuple(replace(inner, after_choice=True) for inner in stage.body.stages))
    with pytest.raises(OptionError, match="once the token is chosen"):
        check_loop(plan, replace(stage, body=late))
    prompt = stage.spec.decode.prompt
    assert prompt is not None
    carry = {"x": CarrySpec(stage.spec.at, prompt, prompt)}
    decode = replace(stage.spec.decode, carry=carry)
    with pytest.raises(OptionError, match="carries values"):
        check_loop(plan, replace(stage, spec=replace(stage.spec, decode=decode)))

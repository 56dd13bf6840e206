"""From a package on disk to its plan: keys, order, liveness, batch keys, state, and failing closed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.graph.assembly import Assembler
from genai_pipeline.graph.compile import compile_package
from genai_pipeline.graph.liveness import find_live
from genai_pipeline.graph.plan import ExecutionPlan, ScopePlan
from genai_pipeline.graph.render import to_dot, to_json, to_mermaid, to_text
from genai_pipeline.graph.scope import Scope
from genai_pipeline.graph.scopes import scope_graphs
from genai_pipeline.metadata.load import load_package
from genai_pipeline.metadata.model import PackageSpec
from genai_pipeline.testing import write_package

EXAMPLES = Path(__file__).parent / "examples"


def compiled(folder: Path, kind: str = "kv", **options: Any) -> ExecutionPlan:
    spec, found = load_package(write_package(folder, kind, **options))
    assert spec is not None, found
    plan, problems = compile_package(spec)
    assert plan is not None, problems
    return plan


def scope_plan(root: Scope, spec: PackageSpec) -> ScopePlan:
    """The plan of scopes that have no graph files: components have no signature, all else is there."""
    return Assembler(scope_graphs(root, spec), find_live(root), {}).scope_plan(root)


def test_a_text_package_compiles(tmp_path: Path) -> None:
    plan = compiled(tmp_path)
    (generate,) = plan.root.stages
    assert plan.outputs == {"text": "generate.text"}
    assert generate.reads == {"prompt.tokens": "prompt.tokens", "logits": "generate/logits"}
    assert generate.outputs == {"text": "generate.text"}
    assert generate.body is not None
    assert generate.body.reads == {"logits": "generate/logits"}
    (decoder,) = generate.body.stages
    assert decoder.reads["loop.tokens"] == "generate/loop.tokens"
    assert decoder.outputs == {"logits": "generate/logits"}
    assert plan.graph is plan.scopes[""]
    assert plan.graph.nodes["stage:generate"]["body"] == "generate"
    assert plan.scopes["generate"].nodes["value:generate/logits"]["dtype"] == "float32"


def test_state_and_bytes_follow_the_graph(tmp_path: Path) -> None:
    component = compiled(tmp_path).components["decoder"]
    (state,) = component.states
    per_token = sum(4 * tensor.shape[1] * tensor.shape[3] for tensor in state.tensors)  # type: ignore[operator]
    assert component.bytes_per_token == per_token > 0
    assert component.bytes_fixed == 0


def test_two_components_run_in_order(tmp_path: Path) -> None:
    plan = compiled(tmp_path, "embeds")
    body = plan.root.stages[0].body
    assert body is not None
    assert [len(level) for level in body.levels] == [1, 1]
    first, second = body.stages
    (rows,) = first.outputs.values()
    assert rows in second.reads.values()
    assert second.drop_after == (rows,)


@pytest.mark.parametrize("kind", ["script", "bytes", "table", "pos", "flat"])
def test_every_closed_form_text_package_compiles(tmp_path: Path, kind: str) -> None:
    assert compiled(tmp_path, kind).capabilities >= {"input.text", "loop.decode", "output.text"}


def test_a_stage_nobody_needs_is_left_out(tmp_path: Path) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        body = metadata["stages"][0]["body"]
        body.append({**body[0], "id": "idle", "run": "twin", "outputs": {"logits": "unread"}})
        spare = dict(metadata["components"]["decoder"])
        metadata["components"]["twin"] = spare

    plan = compiled(tmp_path, edit=edit)
    body = plan.root.stages[0].body
    assert body is not None
    assert [stage.id for stage in body.stages] == ["decoder"]
    assert plan.facts["left_out"] == ("generate/idle",)
    assert "twin" not in plan.components


def test_a_missing_graph_does_not_hide_other_faults(tmp_path: Path) -> None:
    write_package(tmp_path, edit=lambda metadata: metadata["outputs"]["text"].update(value="generate.txt"))
    (tmp_path / "model.onnx").unlink()
    spec, found = load_package(tmp_path)
    assert spec is not None
    assert [problem.code for problem in found] == ["path.missing"]
    plan, problems = compile_package(spec, found)
    assert plan is None
    assert [problem.code for problem in problems] == ["graph.unreachable_output"]


def test_nothing_compiles_while_an_error_stands(tmp_path: Path) -> None:
    write_package(tmp_path)
    (tmp_path / "model.onnx").unlink()
    spec, found = load_package(tmp_path)
    assert spec is not None
    assert compile_package(spec, found) == (None, ())
    plan, problems = compile_package(spec)
    assert plan is None
    assert [(problem.code, problem.at.path) for problem in problems] == [("model.missing", "components.decoder.model")]


def test_an_unknown_component_is_reported_once(tmp_path: Path) -> None:
    write_package(tmp_path, edit=lambda metadata: metadata["stages"][0]["body"][0].update(run="decodr"))
    spec, found = load_package(tmp_path)
    assert spec is not None
    plan, problems = compile_package(spec)
    assert plan is None
    assert [problem.code for problem in problems if problem.severity == "error"] == ["reference.component"]
    assert not [problem for problem in compile_package(spec, found)[1] if problem.severity == "error"]


def test_a_port_without_a_batch_axis_is_part_of_the_batch_key(tmp_path: Path) -> None:
    plan = compiled(tmp_path)
    body = plan.root.stages[0].body
    assert body is not None
    stage = body.stages[0]
    batched = {port: signature.batched for port, signature in plan.components["decoder"].signature.inputs.items()}
    assert stage.batch_key == tuple(port for port in stage.spec.inputs if not batched[port])


def test_frame_loop_order_choice_and_liveness(
    linked: Callable[[str], Scope], spec: Callable[[str], PackageSpec]
) -> None:
    text = (EXAMPLES / "speech_lm.yaml").read_text(encoding="utf-8")
    plan = scope_plan(linked(text), spec(text))
    opening, speak, sound = plan.stages
    assert plan.levels == (("open",), ("speak",), ("sound",))
    assert opening.drop_after == ()  # the loop reads the prompt too
    assert set(speak.drop_after) == {"prompt.tokens", "opening_rows"}
    assert sound.outputs == {"wave": "sound.wave"}
    assert speak.body is not None
    assert [stage.id for stage in speak.body.stages] == ["talker", "take", "concat", "codebooks", "sum"]
    assert [stage.after_choice for stage in speak.body.stages] == [False, True, True, True, True]
    assert speak.body.publishes == {"speak.frames": "speak/codebooks.code"}
    assert speak.body.reads["frame_next"] == "speak/frame_next"
    codebooks = speak.body.stages[3]
    assert codebooks.body is not None
    assert codebooks.body.publishes == {
        "codebooks.code": "speak/codebooks/code",
        "codebooks.embedded": "speak/codebooks/embedded",
    }
    drops = {stage.id: stage.drop_after for stage in speak.body.stages}
    assert drops["sum"] == ("speak/code0", "speak/codebooks.embedded")
    assert drops["codebooks"] == ("speak/pair",)


def test_stages_that_may_run_side_by_side_share_a_level(
    linked: Callable[[str], Scope], spec: Callable[[str], PackageSpec]
) -> None:
    text = (EXAMPLES / "diffusion.yaml").read_text(encoding="utf-8")
    plan = scope_plan(linked(text), spec(text))
    assert plan.levels == (("read", "read_negative", "start"), ("first",), ("denoise",), ("unscale",), ("paint",))


def test_for_each_names_its_list(linked: Callable[[str], Scope], spec: Callable[[str], PackageSpec]) -> None:
    text = (EXAMPLES / "embedder.yaml").read_text(encoding="utf-8")
    (each,) = scope_plan(linked(text), spec(text)).stages
    assert each.each == "prompt"
    assert each.outputs == {"unit": "each.unit"}
    assert each.body is not None
    assert each.body.publishes == {"each.unit": "each/unit"}
    assert each.body.stages[0].reads["prompt.mask"] == "each/prompt.mask"


def test_a_plan_is_frozen(tmp_path: Path) -> None:
    plan = compiled(tmp_path)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.outputs = {}  # type: ignore[misc]


def test_rendering_as_json_is_stable_and_complete(tmp_path: Path) -> None:
    plan = compiled(tmp_path, context_length=256)
    found = to_json(plan)
    assert json.loads(json.dumps(found)) == found
    assert to_json(compile_package(plan.package)[0]) == found  # type: ignore[arg-type]
    per_token = plan.components["decoder"].bytes_per_token
    assert found["memory"] == {
        "bytes_per_token": per_token,
        "bytes_fixed": 0,
        "context_length": 256,
        "bytes_at_context": 256 * per_token,
    }
    assert found["stages"][0]["loop"] == {"prompt": "prompt.tokens", "logits": "logits"}
    keys = {value["key"] for value in found["values"]}
    assert {"prompt.tokens", "generate.text", "generate/loop.tokens", "generate/logits"} <= keys
    ports = {port["name"] for port in found["components"]["decoder"]["inputs"]}
    assert "input_ids" in ports
    assert not any("past" in port for port in ports)  # those are its state


def test_rendering_as_text_names_stages_ports_and_memory(tmp_path: Path) -> None:
    text = to_text(compiled(tmp_path))
    assert re.search(r"state \w+: \d+ tensors in \d+ layers, float32 \[batch, \d+, length, \d+\], \d+ bytes", text)
    for part in ("generate: decode", "prompt <- prompt.tokens", "input_ids <- loop.tokens", "bytes per token"):
        assert part in text


def test_diagrams_box_the_loop_and_escape_names(tmp_path: Path) -> None:
    plan = compiled(tmp_path)
    mermaid, dot = to_mermaid(plan), to_dot(plan)
    assert mermaid.startswith("flowchart LR\n")
    assert 'subgraph s1["decode generate"]' in mermaid
    assert '  n0 -.->|"runs"| s1' in mermaid
    assert "lhead=cluster_s1" in dot
    assert mermaid.count("subgraph") == mermaid.count("  end")
    assert dot.startswith('digraph "tiny-kv" {')
    assert dot.count("{") == dot.count("}")
    hostile = dataclasses.replace(plan, package=dataclasses.replace(plan.package, name='a"b\\c'))
    assert 'digraph "a\\"b\\\\c" {' in to_dot(hostile)

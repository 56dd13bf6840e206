"""What ``inspect`` shows of packages that see, hear and speak: programs, placeholders, groups, loops, operations."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.graph.folding import folded
from genai_pipeline.graph.render import to_dot, to_json, to_mermaid, to_text
from genai_pipeline.testing import write_package
from genai_pipeline.testing.media import write_towers, write_vlm
from genai_pipeline.testing.voices import write_speaker


@pytest.fixture
def plan_of(tmp_path: Path) -> Callable[..., Any]:
    """``plan_of(write_vlm)``: the compiled package."""

    def compile_(write: Callable[..., Any], **options: Any) -> Any:
        spec, problems = gp.validate(Path(write(tmp_path / "package", **options)))
        assert spec is not None, problems
        return gp.compile(spec)

    return compile_


def indented(text: str, first: str) -> list[str]:
    """The line that begins so, and those that are indented below it, without their indent."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip().startswith(first))
    depth = len(lines[start]) - len(lines[start].lstrip())
    below = [lines[start]]
    for line in lines[start + 1 :]:
        if len(line) - len(line.lstrip()) <= depth:
            break
        below.append(line)
    return [line[depth:] for line in below]


def test_inputs_show_their_program_and_what_becomes_of_a_placeholder(plan_of: Any) -> None:
    plan = plan_of(write_vlm)
    assert indented(to_text(plan), "inputs:") == [
        "inputs:",
        "  prompt: text",
        "  images: image, up to 4, optional, <image> in the prompt becomes 4 of them, prepared by prepare:",
        "    decode mode=RGB",
        "    resize size=[4, 4] fit=stretch resample=box",
        f"    rescale factor={1 / 255}",
    ]
    found = to_json(plan)
    assert json.loads(json.dumps(found)) == found
    images = found["inputs"]["images"]
    assert images["placeholder"] == {"token": "<image>", "count": "4", "expand": None}
    assert (images["program"], images["max_items"], images["list"], images["required"]) == ("prepare", 4, True, False)
    assert found["programs"]["prepare"][0] == {"op": "decode", "with": {"mode": "RGB"}}


def test_lists_operations_and_loops_are_told(plan_of: Any) -> None:
    text = to_text(plan_of(write_vlm))
    assert indented(text, "see:") == [
        "see: run vision for each of images",
        "  pixel_values <- images.pixels",
        "  image_features -> features (list of float32)",
    ]
    assert indented(text, "splice:")[1:4] == ["  into <- plain", "  features <- rows", "  at <- images.positions"]
    assert text.index("decoder: run decoder") < text.index("text -> generate.text") < text.index("component vision")


def test_an_iterate_loop_says_over_what_it_goes_and_what_it_joins(plan_of: Any) -> None:
    def with_context(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["over"].update(before=1, after=2)

    text = to_text(plan_of(write_speaker, edit=with_context))
    assert indented(text, "sound: iterate") == [
        "sound: iterate",
        "  over <- levels, 2 of axis 1 a step, 1 before and 2 after them",
        "  collect.wave <- piece of each step, joined on axis 1",
        "  voice: run voice",
        "    levels <- loop.item",
        '    speed <- ["parameters.speed"]',
        "    wave -> sound/piece (float32 [batch, samples])",
        "  wave -> sound.wave (float32)",
    ]
    assert "no state is kept from token to token" in text


def test_groups_conditions_and_parameters_of_operations_are_told(plan_of: Any) -> None:
    def sometimes(metadata: dict[str, Any]) -> None:
        metadata["stages"][0]["when"] = "present(prompt)"

    plan = plan_of(write_towers, edit=sometimes)
    text = to_text(plan)
    assert indented(text, "read:")[0] == "read: group for each of prompt when present(prompt)"
    assert indented(text, "normalize:")[:2] == ["normalize: op normalize", "  with order=2"]
    stage = to_json(plan)["stages"][0]
    assert (stage["when"], stage["for_each"], stage["body"]["stages"][1]["with"]) == (
        "present(prompt)",
        "prompt",
        {"order": 2},
    )


def test_state_that_is_given_says_by_whom_and_how_much(plan_of: Any) -> None:
    text = to_text(plan_of(lambda path: write_package(path, "cross", layers=3).path))
    assert "  state fixed: 6 tensors in 3 layers, float32 [batch, 2, length, 8], from encoder, as long as it is" in text
    assert "state per sequence: 384 bytes per token and 0 fixed, and what is given once\n" in text


def test_state_whose_length_a_graph_fixes_counts(plan_of: Any) -> None:
    plan = plan_of(lambda path: write_package(path, "cross").path)
    decoder = plan.components["decoder"]
    fixed = dataclasses.replace(
        decoder.states[1], tensors=tuple(dataclasses.replace(one, length=10) for one in decoder.states[1].tensors)
    )
    known = dataclasses.replace(decoder, states=(decoder.states[0], fixed))
    plan = dataclasses.replace(plan, components={**plan.components, "decoder": known})
    size = len(fixed.tensors) * 2 * 10 * 8 * 4
    assert to_json(plan)["memory"]["bytes_fixed"] == size
    assert f"from encoder, {size:,} bytes\n" in to_text(plan)
    assert f"bytes per token and {size:,} fixed\n" in to_text(plan)


def test_names_that_differ_in_a_number_are_one() -> None:
    assert folded(["present.0.key", "present.0.value", "present.1.key", "present.1.value", "logits"]) == [
        "present.{0-1}.key",
        "present.{0-1}.value",
        "logits",
    ]
    assert folded(["a.3", "b2", "b3", "x.0.y", "x.2.y", "z", "z"]) == ["a.3", "b2", "b3", "x.0.y", "x.2.y", "z", "z"]


def test_ports_of_layers_are_one_line_and_one_label(plan_of: Any) -> None:
    plan = plan_of(lambda path: write_package(path, "cross", layers=3).path)
    text = to_text(plan)
    assert "    cross.{0-2}.key -> listen.cross.{0-2}.key (float32 [batch, 2, sequence, 8])\n" in text
    assert "  output cross.{0-2}.value: float32 [batch, 2, sequence, 8]\n" in text
    for drawn in (to_mermaid(plan), to_dot(plan)):
        assert "listen.cross.{0-2}.key, listen.cross.{0-2}.value" in drawn


@pytest.mark.parametrize("write", [write_vlm, write_towers, write_speaker])
def test_diagrams_box_every_body(plan_of: Any, write: Any) -> None:
    plan = plan_of(write)
    mermaid, dot = to_mermaid(plan), to_dot(plan)
    bodies = sum(scope != "" and not scope.endswith("[]") for scope in plan.scopes)
    assert mermaid.count("subgraph ") == dot.count("subgraph ") == bodies
    assert mermaid.count('"runs"') == dot.count('label="runs"') == bodies
    drawn = set(re.findall(r"^\s*(n\d+)[\[({]", mermaid, re.MULTILINE))
    assert {end for pair in re.findall(r"(n\d+) -->(?:\|.*?\|)? (n\d+)", mermaid) for end in pair} <= drawn

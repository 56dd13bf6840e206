"""Capabilities: derived from what a package uses, refused by name at the construct, unused ones only noted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from genai_pipeline.graph.capabilities import SUPPORTED
from genai_pipeline.graph.compile import compile_package
from genai_pipeline.graph.package_needs import package_needs
from genai_pipeline.graph.scope import Scope
from genai_pipeline.metadata.capabilities import CAPABILITIES
from genai_pipeline.metadata.model import PackageSpec

EXAMPLES = Path(__file__).parent / "examples"
Spec = Callable[[str], PackageSpec]


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")


def missing(spec: PackageSpec) -> dict[str, str]:
    """Capability -> place, of every one that is refused."""
    _, problems = compile_package(spec)
    refused = [problem for problem in problems if problem.code == "capability.missing"]
    return {problem.message.partition("('")[2].partition("')")[0]: problem.at.path for problem in refused}


@pytest.mark.parametrize("name", ["smollm2", "embedder", "vision"])
def test_what_needs_nothing_that_is_missing(spec: Spec, name: str) -> None:
    assert missing(spec(example(name))) == {}


def test_what_an_answer_may_hold_is_not_missing(spec: Spec) -> None:
    infill = "tokenizer.json, infill: {prefix: a, suffix: b, middle: c},"
    declared = "tools: {format: pythonic}\nreasoning: {open: <r>, close: </r>}\nstructured_output: {modes: [regex]}\n"
    assert missing(spec(declared + example("smollm2").replace("tokenizer.json,", infill, 1))) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "speech_lm",
            {
                "decode.collect": "stages[1].collect.frames",
                "decode.after_choice": "stages[1].body[1].inputs.index",
                "loop.nested": "stages[1].body[3].loop",
            },
        ),
    ],
)
def test_each_missing_one_is_refused_where_it_is_needed(spec: Spec, name: str, expected: dict[str, str | None]) -> None:
    wanted = {capability: path for capability, path in expected.items() if path is not None}
    assert missing(spec(example(name))) == wanted


@pytest.mark.parametrize("name", ["diffusion", "embedder", "smollm2", "speech_lm", "vision", "whisper"])
def test_every_need_has_a_name_that_can_be_declared(spec: Spec, linked: Callable[[str], Scope], name: str) -> None:
    needs = {need.capability for need in package_needs(linked(example(name)), spec(example(name)))}
    assert needs <= CAPABILITIES.keys()


def test_what_is_supported_has_a_name_that_can_be_declared() -> None:
    assert CAPABILITIES.keys() >= SUPPORTED


@pytest.mark.parametrize(
    ("old", "new", "capability"),
    [
        ("update: in_place", "update: in_place, history: 64", "kv.history"),
        ("update: in_place", "update: in_place, keep: session", "kv.session"),
        ("model: model.onnx", "model: model.onnx\n    batch: pack", "batch.pack"),
        ("model: model.onnx", "model: model.onnx\n    span: {first: whole, later: 4}", "span"),
        ("run: decoder", "run: decoder\n        state: read", "state.read"),
        ("logits: logits\n", "logits: logits\n    stop: {when: loop.step > 5}\n", "decode.stop_when"),
        ("limits: ", "session: {idle_seconds: 60}\nlimits: ", "session"),
        ("modality: text}", "modality: text, live: true}", "input.live"),
        ("tokenizer.json,", "tokenizer.json, kind: sentencepiece,", "tokenizer.sentencepiece"),
    ],
)
def test_one_construct_one_capability(spec: Spec, old: str, new: str, capability: str) -> None:
    text = example("smollm2")
    assert old in text
    assert list(missing(spec(text.replace(old, new, 1)))) == [capability]


def test_state_that_two_stages_advance_is_refused(spec: Spec) -> None:
    text = example("smollm2").replace(
        "    logits: logits\n",
        "      - {run: decoder, inputs: {input_ids: loop.tokens}, outputs: {logits: more}}\n    logits: logits\n",
    )
    assert missing(spec(text)) == {"state.shared": "stages[0].body[1]"}


@pytest.mark.parametrize("name", ["loop.decode", "for_each", "op.splice"])
def test_a_declared_capability_that_is_not_used_is_a_note(spec: Spec, name: str) -> None:
    text = example("smollm2").replace("inputs:\n", f"capabilities: [{name}]\ninputs:\n", 1)
    _, problems = compile_package(spec(text))
    found = [(problem.code, problem.severity) for problem in problems if problem.code.startswith("capability")]
    assert found == ([] if name == "loop.decode" else [("capability.unused", "note")])

"""What programs publish, and what is wrong with programs that cannot run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.audio.steps import STEPS
from genai_pipeline.preprocess.programs import Program, check_program
from genai_pipeline.problems import Location, Problems

DOCUMENT = Path(__file__).parents[3] / "docs" / "audio_programs.md"
MEL = {"log_mel": {"n_fft": 64, "hop": 32, "mels": 4}}
TOKENS = {"tokens": {"kernels": [1], "strides": [2], "paddings": [0]}}
WHOLE = {"samples", "seconds", "windows"}

MakeProgram = Callable[[Any], Program]


@pytest.mark.parametrize(
    ("steps", "published", "of_windows"),
    [
        ([], WHOLE, set()),
        ([{"mono": {}}], WHOLE, set()),
        ([{"mono": {}}, MEL], {*WHOLE, "features", "valid_frames"}, {"features", "valid_frames"}),
        (
            [{"mono": {}}, MEL, TOKENS],
            {*WHOLE, "features", "valid_frames", "tokens"},
            {"features", "valid_frames", "tokens"},
        ),
        ([{"mono": {}}, {"window": {"seconds": 1}}], WHOLE, set()),
        ([{"mono": {}}, {"window": {"seconds": 1}}, MEL], WHOLE, {"features", "valid_frames"}),
        (
            [{"mono": {}}, {"window": {"seconds": 1}}, MEL, TOKENS],
            {*WHOLE, "tokens"},
            {"features", "valid_frames", "tokens"},
        ),
    ],
)
def test_what_is_published(
    make_program: MakeProgram, steps: list[dict[str, Any]], published: set[str], of_windows: set[str]
) -> None:
    program = make_program([{"decode": {}}, *steps])
    assert program.publishes == published
    item = program.run((np.ones(2500, np.float32), 1000), {})
    assert item.keys() == published
    assert len(item["windows"]) == (3 if {"window": {"seconds": 1}} in steps else 1)
    for window in item["windows"]:
        assert window.keys() == {"samples", "seconds", "start", "end"} | of_windows


def _problems(steps: list[dict[str, Any]]) -> list[tuple[str, str]]:
    at = Location("test.yaml", 1, 1)
    spec = ProgramSpec(at, "test", tuple(ProgramStep(at, op, given) for step in steps for op, given in step.items()))
    problems = Problems()
    check_program(spec, "audio", problems)
    return [(problem.code, f"{problem.message} | {problem.hint}") for problem in problems.sorted()]


@pytest.mark.parametrize(
    ("steps", "code", "text"),
    [
        ([{"mono": {}}], "program.order", "takes channels of samples"),
        ([{"decode": {}}, MEL], "program.order", "here can stand mono"),
        ([{"decode": {}}, {"window": {"seconds": 1}}], "program.order", "takes samples of one channel"),
        ([{"decode": {}}, {"mono": {}}, {"window": {"seconds": 1}}, {"resample": {"rate": 8000}}], "program.order", ""),
        ([{"decode": {}}, {"mono": {}}, MEL, {"pad": {"samples": 1}}], "program.order", ""),
        ([{"decode": {}}, {"resampel": {"rate": 8000}}], "program.unknown_step", "resample"),
        ([{"decode": {}}, {"resample": {}}], "call.missing_parameter", "needs the parameter 'rate'"),
        ([{"decode": {}}, {"resample": {"rate": 5}}], "call.parameter", "at least 1000"),
        ([{"decode": {}}, {"resample": {"rate": 8000, "quality": "best"}}], "call.parameter", "vhq"),
        (
            [{"decode": {}}, {"pad": {}}],
            "program.parameters",
            "exactly one of seconds, samples and multiple, and has 0",
        ),
        ([{"decode": {}}, {"pad": {"samples": 1, "seconds": 1}}], "program.parameters", "and has 2"),
        ([{"decode": {}}, {"pad": {"multiple": 8, "longer": "cut"}}], "program.parameters", "longer is for"),
        ([{"decode": {}}, {"mono": {}}, {"window": {"seconds": 1, "overlap": 1}}], "program.parameters", "shorter"),
        (
            [{"decode": {}}, {"mono": {}}, {"window": {"seconds": 2, "overlap": 1, "split": "silence"}}],
            "program.parameters",
            "no overlap",
        ),
        (
            [{"decode": {}}, {"mono": {}}, {"window": {"seconds": 2, "search": 1}}],
            "program.parameters",
            "split: silence",
        ),
        (
            [{"decode": {}}, {"mono": {}}, {"window": {"seconds": 2, "search": 2, "split": "silence"}}],
            "program.parameters",
            "search must be shorter",
        ),
        (
            [{"decode": {}}, {"mono": {}}, {"log_mel": {**MEL["log_mel"], "window_length": 65}}],
            "program.parameters",
            "window_length must be at most n_fft",
        ),
        (
            [{"decode": {}}, {"mono": {}}, {"log_mel": {**MEL["log_mel"], "fmin": 9, "fmax": 8}}],
            "program.parameters",
            "fmin",
        ),
        ([{"decode": {}}, {"mono": {}}, {"log_mel": {**MEL["log_mel"], "scale": 0}}], "program.parameters", "scale"),
        (
            [{"decode": {}}, {"mono": {}}, {"log_mel": {**MEL["log_mel"], "melscale": "htk"}}],
            "call.unknown_parameter",
            "mel_scale",
        ),
        (
            [{"decode": {}}, {"mono": {}}, {"tokens": {"kernels": [1, 2], "strides": [1], "paddings": [0]}}],
            "program.parameters",
            "one entry for each layer",
        ),
    ],
)
def test_programs_that_cannot_run(steps: list[dict[str, Any]], code: str, text: str) -> None:
    ((found, message),) = _problems(steps)
    assert found == code
    assert text in message


def test_parameters_of_the_request(make_program: MakeProgram) -> None:
    program = make_program([{"decode": {}}, {"mono": {}}, {"pad": {"seconds": "parameters.seconds * 2"}}])
    item = program.run((np.ones(10, np.float32), 1000), {"parameters.seconds": 0.5})
    assert len(item["samples"]) == 1000


def test_documented_programs_run(make_program: MakeProgram, documented: dict[str, Any], noise: np.ndarray) -> None:
    assert set(documented) == {"log_mel", "waveform", "listen"}
    for steps in documented.values():
        make_program(steps).run((noise, 16000), {})
    assert make_program(documented["listen"]).run((noise, 16000), {})["tokens"] == 50


def test_every_step_and_parameter_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index("## Steps") :]
    for name, step in STEPS.items():
        row = table[table.index(f"| `{name}` |") :]
        for parameter in step.parameters:
            assert f"`{parameter}`" in row.split("## ")[0], (name, parameter)


def test_steps_load_none_of_their_libraries() -> None:
    loaded = "{'soundfile', 'soxr', 'librosa', 'scipy'} & {*sys.modules}"
    probe = f"import sys, genai_pipeline.preprocess.audio.steps; print({loaded})"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"

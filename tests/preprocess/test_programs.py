"""The runner of programs: unknown steps, impossible orders and wrong parameters are found before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from genai_pipeline.errors import MediaError, PackageInvalidError
from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.programs import Program, check_program
from genai_pipeline.problems import Location, Problem, Problems


def spec(text: str) -> ProgramSpec:
    steps = [(name, params) for step in yaml.safe_load(text) for name, params in step.items()]
    written = (
        ProgramStep(Location("p.yaml", line, 1, f"preprocess.p[{line - 1}]"), name, params)
        for line, (name, params) in enumerate(steps, 1)
    )
    return ProgramSpec(Location("p.yaml"), "p", tuple(written))


def problems_of(text: str, modality: str = "image", readable: frozenset[str] | None = None) -> list[Problem]:
    problems = Problems()
    check_program(spec(text), modality, problems, readable)
    return list(problems)


GOOD = "[{decode: {}}, {resize: {size: [2, 2]}}, {rescale: {}}]"


def test_a_good_program_has_no_problems() -> None:
    assert not problems_of(GOOD)
    assert Program.of(spec(GOOD), "image").publishes == {"pixels", "original", "scale"}


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("[]", "program.empty", "no steps"),
        (GOOD.replace("resize", "resise"), "program.unknown_step", "did you mean 'resize'?"),
        (GOOD.replace("resize: {size: [2, 2]}", "log_mel: {}"), "program.unknown_step", "steps of image programs are"),
        (GOOD.replace("{size:", "{sice:"), "call.unknown_parameter", "did you mean 'size'?"),
        (GOOD.replace("[2, 2]", "[2, 2, 2]"), "call.parameter", "a list of 2 integers"),
        (GOOD.replace("[2, 2]", "[2, 0]"), "call.parameter", "at least 1"),
        (GOOD.replace("size: [2, 2]", "size: [2, 2], resample: bicubik"), "call.parameter", "bicubic, bilinear, box"),
        ("[{decode: {}}, {crop: {}}, {rescale: {}}]", "call.missing_parameter", "'size'"),
        ("[{resize: {size: [2, 2]}}, {rescale: {}}]", "program.order", "takes an image, tiles of an image"),
        ("[{decode: {}}, {decode: {}}, {rescale: {}}]", "program.order", "takes what the request gives"),
        ("[{decode: {}}, {rescale: {}}, {resize: {size: [2, 2]}}]", "program.order", "here can stand crop, layout"),
        ("[{decode: {}}, {normalize: {mean: [0], std: [1]}}]", "program.order", "takes an image in numbers"),
        ("[{decode: {}}, {tile: {grid: [2, 2]}}, {rescale: {}}, {patchify: {patch: 2}}]", "program.order", "patchify"),
        ("[{decode: {}}, {rescale: {}}, {layout: {}}, {crop: {size: [2, 2]}}]", "program.order", "nothing can follow"),
        ("[{decode: {}}, {resize: {size: [2, 2]}}]", "program.end", "it must end in"),
        (GOOD.replace("size: [2, 2]", ""), "program.parameters", "fit stretch needs the parameter 'size'"),
        (GOOD.replace("size: [2, 2]", "size: [2, 2], edge: 3"), "program.parameters", "has no use for 'edge'"),
        (GOOD.replace("size: [2, 2]", "fit: best, sizes: [[2], 3]"), "program.parameters", "a list of [height, width]"),
        (GOOD.replace("size: [2, 2]", "fit: longest_edge, edge: 4, round: up"), "program.parameters", "'multiple'"),
        (
            GOOD.replace("size: [2, 2]", "fit: pixel_budget, multiple: 1, min_pixels: 9, max_pixels: 4"),
            "program.parameters",
            "min_pixels is more than max_pixels",
        ),
        ("[{decode: {}}, {tile: {}}, {rescale: {}}]", "program.parameters", "either size, of a tile, or grid"),
        (
            "[{decode: {}}, {tile: {size: [2, 2], thumbnail_size: [2, 2]}}, {rescale: {}}]",
            "program.parameters",
            "no use without a thumbnail",
        ),
        ("[{decode: {}}, {rescale: {}}, {normalize: {mean: [0], std: [0]}}]", "program.parameters", "greater than 0"),
        (
            "[{decode: {}}, {rescale: {}}, {normalize: {mean: [0, 0], std: [1]}}]",
            "program.parameters",
            "mean has 2 values, and channels of RGB are 3",
        ),
        (
            "[{decode: {mode: L}}, {rescale: {}}, {normalize: {mean: [0], std: [1, 1, 1]}}]",
            "program.parameters",
            "std has 3 values, and channels of L are 1",
        ),
        (
            "[{decode: {}}, {pad: {size: [2, 2], fill: [0, 0, 0, 0]}}, {rescale: {}}]",
            "program.parameters",
            "fill has 4 values, and channels of RGB are 3",
        ),
        (
            "[{decode: {}}, {pad: {size: [2, 2], multiple: 2}}, {rescale: {}}]",
            "program.parameters",
            "exclude each other",
        ),
        (GOOD.replace("[2, 2]", "[images.width, 2]"), "program.reads", "'images.width'"),
        (GOOD.replace("[2, 2]", "[2 +, 2]"), "call.parameter", "size of the step 'resize'"),
    ],
)
def test_problems(text: str, code: str, says: str) -> None:
    (problem,) = problems_of(text)
    assert problem.code == code
    assert says in f"{problem.message} {problem.hint}"
    with pytest.raises(PackageInvalidError) as caught:
        Program.of(spec(text), "image")
    assert [found.code for found in caught.value.problems] == [code]


def test_every_problem_is_reported() -> None:
    text = "[{decode: {mode: RGBX}}, {resise: {}}, {crop: {size: 3}}, {normalize: {}}]"
    found = [(problem.at.line, problem.code) for problem in problems_of(text)]
    missing = (4, "call.missing_parameter")
    assert found == [(1, "call.parameter"), (2, "program.unknown_step"), (3, "call.parameter"), missing, missing]


def test_names_that_programs_may_read() -> None:
    text = GOOD.replace("[2, 2]", "[parameters.height, 'max(2, parameters.width)']")
    assert not problems_of(text)
    (problem,) = problems_of(text, readable=frozenset({"parameters.height"}))
    assert (problem.code, "parameters.width" in problem.message) == ("program.reads", True)


@pytest.mark.parametrize("modality", ["text", "video", "tensor"])
def test_modalities_without_programs(modality: str) -> None:
    (problem,) = problems_of(GOOD, modality)
    assert problem.code == "program.modality"
    assert "audio, image" in problem.hint


def test_fields_that_a_later_step_makes_void() -> None:
    padded = "[{decode: {}}, {pad: {shape: square}}, {rescale: {}}]"
    assert "mask" in Program.of(spec(padded), "image").publishes
    cropped = Program.of(spec(padded.replace("{rescale", "{crop: {size: [2, 2]}}, {rescale")), "image")
    assert cropped.publishes == {"pixels", "original"}
    assert cropped.run(np.zeros((3, 4), np.uint8), {}).keys() == {"pixels", "original"}


def test_an_error_names_the_input() -> None:
    with pytest.raises(MediaError) as caught:
        Program.of(spec(GOOD), "image").run(b"nothing", {}, param="images")
    assert caught.value.to_dict()["param"] == "images"
    with pytest.raises(MediaError, match="the image"):
        Program.of(spec(GOOD), "image").run(b"nothing", {})


def test_checking_imports_no_media_library() -> None:
    code = (
        "import sys; from genai_pipeline.preprocess.programs import check_program; "
        "from genai_pipeline.metadata.model import ProgramSpec, ProgramStep; "
        "from genai_pipeline.problems import Location, Problems; at = Location('p.yaml'); "
        "step = lambda name, **params: ProgramStep(at, name, params); found = Problems(); "
        "check_program(ProgramSpec(at, 'p', (step('decode'), step('rescale'))), 'image', found); "
        "check_program(ProgramSpec(at, 'p', (step('decode'), step('mono'))), 'audio', found); "
        "print(len(found), [name for name in ('PIL', 'soundfile', 'soxr', 'librosa') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done: Any = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=root
    )
    assert done.stdout.strip() == "0 []", done

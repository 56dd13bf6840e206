"""Steps of processor_config.json: the pixels are those that onnxruntime-genai makes, and what cannot be is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.importers.genai_config.image_program import Ends, ImageProgram, read_image_program
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.problems import Location

Folders = Callable[..., Any]
Steps = list[tuple[str, dict[str, Any] | None]]
DECODE, RESCALE, PERMUTE = (
    ("DecodeImage", {"color_space": "RGB"}),
    ("Rescale", None),
    ("Permute3D", {"dims": [2, 0, 1]}),
)
NORMALIZE = ("Normalize", {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]})
BUDGET = {"smart_resize": 1, "min_pixels": 100, "max_pixels": 900, "patch_size": 3, "merge_size": 2}
FILE = "processor_config.json"
NOWHERE = Location(FILE)


def write(folder: Path, steps: Steps) -> None:
    """Writes processor_config.json."""
    folder.mkdir(exist_ok=True)
    listed = [
        {"operation": {"name": "x", "type": kind, **({"attrs": attrs} if attrs else {})}} for kind, attrs in steps
    ]
    (folder / FILE).write_text(json.dumps({"processor": {"name": "eye", "transforms": listed}}), encoding="utf-8")


def read(folder: Path, steps: Steps) -> tuple[ImageProgram, ImportReport]:
    """Our program of such steps, refused steps reported."""
    write(folder, steps)
    report = ImportReport()
    return read_image_program(SourceFolder(folder), FILE, report), report


def png(mode: str, height: int, width: int) -> bytes:
    """A noisy picture in one of Pillow's modes."""
    rng = np.random.default_rng([height, width])
    samples = rng.integers(0, 256, (height, width, len(mode)), dtype=np.uint8)
    image = Image.fromarray(samples[..., 0] if mode == "L" else samples, mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def made(program: ImageProgram, picture: bytes) -> Any:
    """The pixels of a picture under our program."""
    steps = (ProgramStep(NOWHERE, name, params) for step in program.steps for name, params in step.items())
    return Program.of(ProgramSpec(NOWHERE, "picture", tuple(steps)), "image").run(picture, {})["pixels"]


@pytest.mark.parametrize(
    "steps",
    [
        [DECODE, ("Resize", {"height": 16, "width": 16, "keep_aspect_ratio": 0}), RESCALE, NORMALIZE, PERMUTE],
        [DECODE, ("Resize", {"height": 9, "width": 21, "interpolation": "LINEAR"}), RESCALE, PERMUTE],
        [DECODE, ("Resize", {"height": 40, "width": 33, "interpolation": "LANCZOS"}), RESCALE, PERMUTE],
        [("DecodeImage", {"color_space": "BGR"}), ("Resize", {"height": 8, "width": 8}), RESCALE, NORMALIZE, PERMUTE],
        [DECODE, ("ConvertRGB", None), ("Resize", {"height": 8, "width": 8}), RESCALE, NORMALIZE, PERMUTE],
        [DECODE, ("Resize", None), ("Rescale", {"rescale_factor": 0.25}), ("Normalize", None), PERMUTE],
        [DECODE, ("Resize", {"height": 8, "width": 8}), RESCALE, ("Normalize", {"qwen2_5_vl": 1}), PERMUTE],
        [DECODE, ("CenterCrop", {"height": 5, "width": 6}), RESCALE, NORMALIZE, PERMUTE],
        [DECODE, ("CenterCrop", {"height": 6, "width": 5}), RESCALE, PERMUTE],
        [DECODE, ("Resize", BUDGET), RESCALE, NORMALIZE, PERMUTE, ("PixtralImageSizes", None)],
    ],
)
@pytest.mark.parametrize(("mode", "height", "width"), [("RGB", 20, 31), ("RGBA", 7, 9), ("L", 33, 8)])
def test_pixels_are_those_of_onnxruntime_genai(
    seeing_folder: Folders, steps: Steps, mode: str, height: int, width: int
) -> None:
    folder, picture = seeing_folder(), png(mode, height, width)
    program, report = read(folder.path, steps)
    report.check("the steps")
    if program.ends is Ends.SIZED:  # the processor of this type gives the pixels alone
        write(folder.path, steps[:-1])
    theirs = folder.pixels("<start_of_image>", [picture])
    np.testing.assert_allclose(made(program, picture), theirs[0], rtol=0, atol=2e-6)


REFUSED: list[tuple[Steps, str]] = [
    ([DECODE, ("Phi3ImageTransform", None)], "the step Phi3ImageTransform cuts pictures into tiles"),
    ([DECODE, ("Gemma4ImageTransform", {"patch_size": 16})], "the step Gemma4ImageTransform makes patches with their"),
    ([DECODE, ("Reszie", None), RESCALE, PERMUTE], "the step Reszie is not known"),
    ([DECODE, ("Resize", {"hight": 3}), RESCALE, PERMUTE], "attrs.hight: the step Resize has no such attribute"),
    ([DECODE, RESCALE, ("CenterCrop", None), PERMUTE], "the step CenterCrop takes samples of 8 bits"),
    ([DECODE, ("Resize", None), NORMALIZE, PERMUTE], "the step Normalize takes numbers behind Rescale"),
    ([DECODE, ("Resize", None), RESCALE], "do not end in numbers with channels first"),
    ([DECODE, ("Resize", None), RESCALE, ("Permute3D", None)], "is none, which means [1, 2, 0]"),
    ([DECODE, RESCALE, PERMUTE], "pictures keep sizes of their own"),
    ([DECODE, ("Resize", None), RESCALE, ("PatchImage", None)], "the sides of pictures are no multiples of that"),
]


@pytest.mark.parametrize(("steps", "why"), REFUSED)
def test_what_cannot_be_done_as_there_is_refused_by_name(tmp_path: Path, steps: Steps, why: str) -> None:
    _, report = read(tmp_path / "source", steps)
    with pytest.raises(ImportRefusedError) as caught:
        report.check("the steps")
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ({"interpolation": "BOX"}, "interpolation is 'BOX'; allowed"),
        ({"keep_aspect_ratio": True}, "keep_aspect_ratio is true; allowed: an integer"),
        ({"height": 0}, "height is 0; allowed: an integer of at least 1"),
    ],
)
def test_values_of_another_kind_are_errors(tmp_path: Path, attrs: dict[str, Any], why: str) -> None:
    with pytest.raises(ImportModelError) as caught:
        read(tmp_path / "source", [DECODE, ("Resize", attrs), RESCALE, PERMUTE])
    assert why in caught.value.message


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({}, "the key 'processor' is missing"),
        ({"processor": {"transform": []}}, "the key 'processor.transforms' is missing"),
        ({"processor": {"transforms": {}}}, "processor.transforms is {}; allowed: a list"),
        ({"processor": {"transforms": [{"operation": {"name": "x"}}]}}, "processor.transforms[0].operation.type"),
        (
            {"processor": {"transforms": [{"operation": {"type": "Normalize", "attrs": {"mean": [1, 2]}}}]}},
            "operation.attrs.mean is [1, 2]; allowed: a list of 3 numbers",
        ),
    ],
)
def test_a_file_that_is_no_list_of_steps_is_an_error(tmp_path: Path, written: dict[str, Any], why: str) -> None:
    (tmp_path / FILE).write_text(json.dumps(written), encoding="utf-8")
    with pytest.raises(ImportModelError) as caught:
        read_image_program(SourceFolder(tmp_path), FILE, ImportReport())
    assert why in caught.value.message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match=f"the file '{FILE}' is missing: it says how pictures become pixels"):
        read_image_program(SourceFolder(tmp_path), FILE, ImportReport())

"""Programs written in YAML, and pictures in every mode."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.problems import Location

PROGRAMS = Path(__file__).parent / "programs"
NOWHERE = Location("program.yaml")


def spec_of(steps: list[dict[str, dict[str, Any]]]) -> ProgramSpec:
    written = (ProgramStep(NOWHERE, name, params) for step in steps for name, params in step.items())
    return ProgramSpec(NOWHERE, "program", tuple(written))


@pytest.fixture(scope="session")
def program() -> Callable[[str], Program]:
    """A program of its YAML text, or of a file in programs/."""

    def build(text: str) -> Program:
        steps = yaml.safe_load((PROGRAMS / text).read_text() if text.endswith(".yaml") else text)
        return Program.of(spec_of(steps), "image")

    return build


def drawn(mode: str, height: int, width: int, seed: int = 0) -> Image.Image:
    """A picture with structure and noise, in any of Pillow's modes."""
    rng = np.random.default_rng([seed, height, width])
    ramp = np.add.outer(np.linspace(0, 120, height), np.linspace(0, 90, width))
    colour = (ramp[:, :, None] + rng.integers(0, 45, (height, width, 3))).astype(np.uint8)
    alpha = rng.integers(0, 256, (height, width), dtype=np.uint8)
    base = Image.fromarray(colour)
    if mode in ("RGBA", "LA", "PA"):
        image = base.convert({"RGBA": "RGB", "LA": "L", "PA": "P"}[mode])
        if mode == "PA":
            image = image.convert("PA")
        image.putalpha(Image.fromarray(alpha))
        return image
    if mode == "P with transparency":
        image = base.quantize(16)
        image.info["transparency"] = 3
        return image
    if mode == "P with alphas":
        image = base.quantize(16)
        image.info["transparency"] = bytes(range(0, 256, 16))
        return image
    if mode == "RGB with transparency":
        base.info["transparency"] = tuple(int(level) for level in colour[0, 0])
        return base
    if mode.startswith("I"):
        deep = (colour[:, :, 0].astype(np.uint16) * 257) >> np.uint16(seed % 9)
        return Image.fromarray(deep if mode == "I;16" else deep.astype(np.int32))
    if mode == "F":
        return Image.fromarray(colour[:, :, 0].astype(np.float32) + 0.5)
    return base.convert(mode)


MODES = (
    "RGB", "RGBA", "L", "1", "LA", "P", "P with transparency", "P with alphas", "CMYK", "I;16", "I", "F", "YCbCr",
    "HSV", "LAB", "RGBX", "PA", "RGB with transparency",
)  # fmt: skip


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of a file with the picture."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(scope="session")
def modes() -> tuple[str, ...]:
    """Names for ``draw``: every mode that a picture can have, with transparency given in every way."""
    return MODES


@pytest.fixture(scope="session")
def draw() -> Callable[..., Image.Image]:
    """A picture of (mode, height, width, seed)."""
    return drawn


@pytest.fixture(scope="session")
def encode() -> Callable[..., bytes]:
    """A file's bytes of (picture, format, options of Pillow)."""
    return encoded


@pytest.fixture(scope="session")
def upright_sizes() -> tuple[tuple[int, int], ...]:
    """Heights and widths: odd, tiny, square, wide, tall, larger and smaller than what programs make."""
    return (
        (1, 1), (224, 224), (480, 640), (37, 91), (333, 1000), (1000, 333), (7, 3), (1, 150), (150, 1), (365, 364),
        (223, 225), (336, 672), (673, 335), (29, 28), (28, 2000), (1200, 61), (513, 511), (2, 2), (101, 103),
        (728, 728), (1457, 360), (90, 161), (14, 14), (300, 1),
    )  # fmt: skip

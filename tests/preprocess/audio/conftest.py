"""Programs from YAML, and sounds as files."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import yaml

from genai_pipeline.metadata.model import ProgramSpec, ProgramStep
from genai_pipeline.preprocess.programs import Program
from genai_pipeline.problems import Location

DOCUMENT = Path(__file__).parents[3] / "docs" / "audio_programs.md"
MakeProgram = Callable[[Any], Program]
Encode = Callable[..., bytes]


def spec_of(steps: str | list[dict[str, Any]]) -> ProgramSpec:
    """The spec of a program written as YAML, or as the steps that YAML holds."""
    written = yaml.safe_load(steps) if isinstance(steps, str) else steps
    at = Location("test.yaml", 1, 1)
    return ProgramSpec(
        at, "test", tuple(ProgramStep(at, op, params or {}) for s in written for op, params in s.items())
    )


@pytest.fixture(scope="session")
def make_program() -> MakeProgram:
    """Makes a program of steps."""
    return lambda steps: Program.of(spec_of(steps), "audio")


@pytest.fixture(scope="session")
def run_steps(make_program: MakeProgram) -> Callable[..., dict[str, Any]]:
    """Runs steps on samples [n] or [channels, n] of a rate, after decode and what ``before`` names."""

    def run(steps: str, samples: Any, rate: int = 16000, before: str = "{decode: {}}, {mono: {}}") -> dict[str, Any]:
        return make_program(f"[{before}, {steps}]").run((samples, rate), {}, param="audio")

    return run


@pytest.fixture(scope="session")
def documented() -> dict[str, list[dict[str, Any]]]:
    """The programs that the document on audio programs shows, by name."""
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    programs: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        programs |= yaml.safe_load(block)["preprocess"]
    return programs


@pytest.fixture(scope="session")
def encode() -> Encode:
    """Encodes samples [n] or [n, channels] as a file."""

    def made(samples: Any, rate: int = 16000, kind: str = "WAV", subtype: str = "PCM_16", **more: Any) -> bytes:
        data = io.BytesIO()
        channels = samples.shape[1] if samples.ndim > 1 else 1
        with soundfile.SoundFile(data, "w", rate, channels, subtype, format=kind, **more) as file:
            for start in range(0, len(samples), rate):  # the Vorbis encoder overflows its stack on long blocks
                file.write(samples[start : start + rate])
        return data.getvalue()

    return made


@pytest.fixture(scope="session")
def noise() -> np.ndarray:
    """Two seconds at 16 kHz: a tone in noise."""
    random = np.random.default_rng(11)
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(32000) / 16000)
    return (tone + random.normal(0, 0.05, 32000)).astype(np.float32)

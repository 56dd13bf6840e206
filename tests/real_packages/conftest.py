"""Packages on their real weights, pulled once into the user cache, and graphs run without this framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import genai_pipeline as gp
from genai_pipeline.backends.threads import POOL

Run = Callable[[Mapping[str, Any]], list[Any]]


@pytest.fixture(scope="session")
def raw_graph() -> Callable[[Path], Run]:
    """Loads an ONNX file as it is; gives a function from inputs to outputs."""

    def load(path: Path) -> Run:
        options = onnxruntime.SessionOptions()
        POOL.ensure(onnxruntime, None)  # once it exists, sessions with threads of their own are refused
        options.use_per_session_threads = False
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, dict(inputs))

    return load


@pytest.fixture(scope="session")
def together() -> Callable[[gp.Pipeline, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Runs requests side by side; gives their outputs in order."""

    def run(pipe: gp.Pipeline, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(pipe.run, requests))

    return run


@pytest.fixture(scope="session")
def shared_runs() -> Callable[[gp.Pipeline], int]:
    """How many runs outside decode loops had rows of more than one request or item so far."""

    def count(pipe: gp.Pipeline) -> int:
        sizes = pipe.stats()["rows"].get("aside", {})
        return sum(number for size, number in sizes.items() if int(size) > 1)

    return count

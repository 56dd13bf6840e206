"""Requests to packages on their real weights, side by side, and how many runs they shared."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import genai_pipeline as gp


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

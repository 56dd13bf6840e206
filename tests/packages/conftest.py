"""What the corpus pins down of a package's problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline

HERE = Path(__file__).parent


def found(folder: Path) -> list[dict[str, Any]]:
    """The problems of a package in the form of ``expected.json``; notes are left out."""
    _, problems = genai_pipeline.validate(folder)
    places = [(p.code, p.at.path, p.at.line) for p in problems if p.severity != "note"]
    return [{"code": code, "path": path, "line": line} for code, path, line in sorted(places)]


@pytest.fixture
def problems_of():
    """``problems_of(folder)``: what ``expected.json`` must hold."""
    return found

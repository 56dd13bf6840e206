from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.testing import TinyPackage, write_package

Open = Callable[..., tuple[gp.Pipeline, TinyPackage]]


@pytest.fixture
def open_tiny(tmp_path: Path) -> Iterator[Open]:
    """Writes a closed-form package and loads it; every pipeline is closed after the test."""
    pipes: list[gp.Pipeline] = []

    def open_(
        kind: str = "kv", *, load: dict[str, Any] | None = None, **options: Any
    ) -> tuple[gp.Pipeline, TinyPackage]:
        package = write_package(tmp_path / f"package{len(pipes)}", kind, **options)
        pipes.append(gp.load(package.path, **(load or {})))
        return pipes[-1], package

    yield open_
    for pipe in pipes:
        pipe.close()

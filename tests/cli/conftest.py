"""Runs the command: in this process for most tests, in one of its own where pipes and signals matter."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.main import run_command
from genai_pipeline.testing import TinyPackage, write_package

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """``command("run", folder, "hi")`` runs genai-pipeline with these arguments."""

    def run(*arguments: Any, stdin: bytes | None = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run_command([_word(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.Popen[str]]:
    """``process("run", folder, "hi", stdout=...)`` starts genai-pipeline in a process of its own."""

    def start(*arguments: Any, **settings: Any) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings.pop("env", {})}
        command = [sys.executable, "-W", "error", "-m", "genai_pipeline", *map(_word, arguments)]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **settings}
        return subprocess.Popen(command, env=environment, **settings)

    return start


def _word(argument: Any) -> str:
    return os.fspath(argument) if isinstance(argument, os.PathLike) else str(argument)


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """``without("PIL")``: the environment of a process in which these modules are not installed."""

    def hidden(*modules: str) -> dict[str, str]:
        folder = tmp_path / "hidden"
        folder.mkdir(exist_ok=True)
        for name in modules:
            text = f'raise ModuleNotFoundError("No module named {name!r}", name="{name}")\n'
            (folder / f"{name}.py").write_text(text)
        return {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}

    return hidden


@pytest.fixture
def tiny(tmp_path: Path) -> TinyPackage:
    """A package that answers every prompt with the words of a script, then ends."""
    return write_package(tmp_path / "tiny", "script", generation={"defaults": {"temperature": 0}})


@pytest.fixture
def broken(tmp_path: Path) -> TinyPackage:
    """A package with one fault: a misspelt top-level field."""
    return write_package(tmp_path / "broken", "script", edit=lambda metadata: metadata.update(lmits={}))

"""The shell scripts: which Python a new environment gets, what is said when there is none, and how the gate ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment)


def test_no_supported_python_is_said_with_what_was_tried(tmp_path: Path) -> None:
    old = script(tmp_path / "python-old", "exit 1")
    done = run(TOOLS / "make_venv", tmp_path / "venv", PYTHON=str(old))
    assert done.returncode == 1
    assert f"no Python 3.11, 3.12 or 3.13 found (tried: {old})" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path) -> None:
    bare = script(tmp_path / "python-bare", f'case "$2" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"')
    done = run(TOOLS / "make_venv", tmp_path / "venv", PYTHON=str(bare))
    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    failing = script(
        tmp_path / "python-failing", f'[ "$2" = venv ] && mkdir "$3" && exit 9\nexec "{sys.executable}" "$@"'
    )
    done = run(TOOLS / "make_venv", tmp_path / "venv", PYTHON=str(failing))
    assert done.returncode == 9
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("failing", "code", "ran"),
    [
        ("none", 0, ["format", "lint", "types", "imports", "size budget", "import budget", "tests"]),
        ("mypy", 7, ["format", "lint", "types"]),
    ],
)
def test_the_gate_stops_at_the_first_failure(tmp_path: Path, failing: str, code: int, ran: list[str]) -> None:
    for name in ("python", "lint-imports"):
        script(tmp_path / name, f'case "$*" in *{failing}*) exit 7;; esac')
    done = run(TOOLS / "check", PATH=f"{tmp_path}:{os.environ['PATH']}", VIRTUAL_ENV=str(tmp_path))
    assert done.returncode == code
    titles = [line.removeprefix("== ") for line in done.stdout.splitlines() if line.startswith("== ")]
    assert titles == [*ran, "summary"]
    assert done.stdout.count(" ok ") == len(ran) - (code != 0)
    assert ("FAILED (exit code 7)" in done.stdout) == (code != 0)

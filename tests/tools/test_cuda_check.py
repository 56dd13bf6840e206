"""The check of a GPU: said to be impossible without one, and run to its end behind emulated memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from genai_pipeline.testing import write_package

TOOL = Path(__file__).resolve().parents[2] / "tools" / "cuda_check.py"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TOOL.parents[1])}
    command = [sys.executable, "-W", "error", TOOL, *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, env=environment)


def test_without_a_gpu_it_says_so() -> None:
    done = run()
    assert done.returncode == 5, done.stderr
    assert done.stdout.startswith("no check: this onnxruntime has no provider 'cuda'; install")


def test_the_whole_of_it_on_an_emulated_device(tmp_path: Path) -> None:
    package = write_package(tmp_path)
    done = run(package.path, "--emulate", "--batches", "1,4", "--tokens", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(" equal " in line and "state in emulated:0" in line for line in lines) == 5
    table = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert [row[0] for row in table] == ["1", "4"]
    assert all(float(number) > 0 for row in table for number in row)
    assert lines[-1].startswith("all right, in ")

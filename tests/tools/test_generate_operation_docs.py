"""The committed page on operations is what their declarations give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from genai_pipeline.metadata.operations import BUILT_IN

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, "tools/generate_operation_docs.py", "--check"]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_operation_and_every_port_has_a_meaning() -> None:
    for spec in BUILT_IN.values():
        described = [*spec.inputs, *spec.outputs, *spec.parameters.values()]
        assert spec.doc.endswith("."), spec.name
        assert all(item.doc and not item.doc.endswith(".") for item in described), spec.name

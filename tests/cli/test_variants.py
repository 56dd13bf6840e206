"""``inspect`` and ``doctor`` tell which variant of a component runs here, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing import write_package

WHY = "cuda is not available here; cpu is available here"


@pytest.fixture
def varied(tmp_path: Path) -> Path:
    def edit(metadata: dict[str, Any]) -> None:
        (decoder,) = metadata["components"].values()
        model = decoder.pop("model")
        decoder["variants"] = [{"provider": "cuda", "model": model}, {"provider": "cpu", "model": model}]

    return write_package(tmp_path / "varied", "script", edit=edit).path


def test_the_reason_is_shown(command: Callable[..., Any], varied: Path) -> None:
    assert f"variant cpu, of 2: {WHY}" in command("inspect", varied).out
    ran = command("doctor", varied, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["variants"] == {"decoder": f"model.onnx: {WHY}"}
    assert "variants" not in json.loads(command("doctor", "--json").out)


def test_a_variant_for_another_machine_ends_with_its_exit_code(command: Callable[..., Any], varied: Path) -> None:
    ran = command("run", varied, "hi", "--provider", "dml")
    assert ran.code == 5
    assert "provider 'dml' is not available" in ran.err
    assert "onnxruntime-directml" in ran.err

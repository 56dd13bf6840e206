"""A runtime that is missing, doubled, old or broken is one line that says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from genai_pipeline.backends.providers import long_name, short_name
from genai_pipeline.backends.runtime import check_distributions, installed_distributions, onnxruntime
from genai_pipeline.errors import RuntimeMissingError
from genai_pipeline.testing.packages import write_package


def test_the_installed_runtime_is_found() -> None:
    assert installed_distributions()
    assert onnxruntime().InferenceSession


def test_every_provider_of_the_runtime_has_a_short_name() -> None:
    names = onnxruntime().get_all_providers()
    assert [long_name(short_name(name)) for name in names] == names


def test_the_runtime_keeps_nothing_about_this_machine(tmp_path: Path) -> None:
    package = write_package(tmp_path / "p", "pos").path
    home = tmp_path / "home"
    home.mkdir()
    code = f"import genai_pipeline as gp; gp.load({str(package)!r}).generate('a', max_new_tokens=1)"
    environment = {**os.environ, "HOME": str(home)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert not [path for path in home.rglob("*") if "Microsoft" in path.parts]


def test_none_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RuntimeMissingError) as caught:
        onnxruntime()
    assert caught.value.message == "ONNX Runtime is not installed"
    assert "genai-pipeline[cpu]" in caught.value.hint
    assert caught.value.exit_code == 5


def test_two_installed() -> None:
    with pytest.raises(RuntimeMissingError) as caught:
        check_distributions({"onnxruntime": "1.32.0", "onnxruntime-gpu": "1.32.0"})
    assert caught.value.message == (
        "onnxruntime 1.32.0 and onnxruntime-gpu 1.32.0 are both installed and overwrite each other"
    )
    assert caught.value.hint.startswith("pip uninstall -y onnxruntime onnxruntime-gpu")
    assert "\n" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize("version", ["1.31.2", "0.9", "1.9.0"])
def test_too_old(version: str) -> None:
    with pytest.raises(RuntimeMissingError, match=rf"{version} is too old: 1\.32 or later"):
        check_distributions({"onnxruntime": version})


@pytest.mark.parametrize("version", ["1.32.0", "1.33.0.dev20260101", "2.0"])
def test_new_enough(version: str) -> None:
    check_distributions({"onnxruntime-gpu": version})

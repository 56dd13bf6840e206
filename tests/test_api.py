"""The way in: public names, what they refuse, and that wrong options are refused before anything is fetched."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OptionError, PackageNotFoundError, RequestError
from genai_pipeline.testing import TinyPackage, write_package


@pytest.fixture
def tiny(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "tiny", "script", generation={"defaults": {"temperature": 0}})


@pytest.fixture
def nothing_to_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known package would be fetched, and may not be."""
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", "1")


def test_the_public_names_can_be_listed() -> None:
    assert {"load", "validate", "compile", "Pipeline", "GenaiError", "Event", "Result"} <= set(dir(gp))
    assert set(gp.__all__) <= set(dir(gp))


@pytest.mark.parametrize(
    "call", [lambda: gp.load(5), lambda: gp.validate(3), lambda: gp.load(""), lambda: gp.load(None)]
)
def test_what_names_no_package_is_refused(call: Any) -> None:
    with pytest.raises(gp.GenaiError, match="a folder, a metadata file or a known name") as caught:
        call()
    assert caught.value.hint


def test_compile_takes_what_validate_gives() -> None:
    with pytest.raises(gp.GenaiError, match="compile takes what validate gives, not None") as caught:
        gp.compile(None)  # type: ignore[arg-type]
    assert "validate" in caught.value.hint


def test_a_path_the_system_refuses_is_a_named_error() -> None:
    with pytest.raises(PackageNotFoundError, match="cannot be read"):
        gp.load("x" * 5000)


@pytest.mark.usefixtures("nothing_to_fetch")
@pytest.mark.parametrize(
    "wrong",
    [
        {"threads": 0},
        {"threads": 1025},
        {"threads": True},
        {"threads": 1.5},
        {"context_length": 1},
        {"prefill_chunk": 2},
        {"max_batch": 0},
        {"memory": "lots"},
        {"memory": math.nan},
        {"memory": -1},
        {"prefix_cache": "no"},
        {"policy": "lucky"},
        {"backend": "abacus"},
        {"providers": 5},
        {"providers": []},
        {"providers": ["cpu", None]},
    ],
)
def test_load_options_are_checked_before_anything_is_fetched(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        gp.load("smollm2-135m", **wrong)
    (name,) = wrong
    assert caught.value.param == name
    assert name in caught.value.message


def test_load_options_take_numbers_of_numpy(tiny: TinyPackage) -> None:
    with gp.load(tiny.path, context_length=np.int64(64), max_batch=np.int32(2)) as pipe:
        assert pipe.context_length == 64
        assert pipe.generate("hello", max_new_tokens=np.int64(2)).text == "O P"


@pytest.mark.parametrize("timeout", ["5", 0, -1, math.nan, math.inf, True, np.float64("nan")])
def test_a_timeout_is_a_number_of_seconds(tiny: TinyPackage, timeout: Any) -> None:
    with gp.load(tiny.path) as pipe, pytest.raises(OptionError, match="timeout must be ") as caught:
        pipe.stream("hello", timeout=timeout)
    assert caught.value.param == "timeout"


def test_requests_are_checked_against_the_package(tiny: TinyPackage) -> None:
    with gp.load(tiny.path) as pipe:
        with pytest.raises(OptionError, match=r"stop_token_ids has 99999, which is outside of the vocabulary"):
            pipe.stream("hello", stop_token_ids=[5, 99999])
        with pytest.raises(OptionError, match="min_new_tokens is 5"):
            pipe.stream("hello", min_new_tokens=5, max_new_tokens=2)
        with pytest.raises(RequestError, match="raw goes with a plain prompt"):
            pipe.stream(messages=[{"role": "user", "content": "hello"}], raw=True)
        assert pipe.generate("hello", timeout=np.float32(60), max_new_tokens=2).text == "O P"


def test_a_request_without_a_prompt_uses_the_default_of_the_input(tmp_path: Path) -> None:
    inputs = {"prompt": {"modality": "text", "default": "hello"}}
    package = write_package(tmp_path / "tiny", "script", edit=lambda metadata: metadata.update(inputs=inputs))
    with gp.load(package.path) as pipe:
        assert pipe.generate(temperature=0).usage == pipe.generate("hello", temperature=0).usage
        assert pipe.run({}, temperature=0) == pipe.run({"prompt": "hello"}, temperature=0)

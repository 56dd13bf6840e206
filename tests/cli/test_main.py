"""What all commands share: exit codes, where text goes, -v and -q, closed pipes, the second script's name."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib.metadata import entry_points, version
from typing import Any

import pytest

from genai_pipeline.cli import entry

Command = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]


def test_help_lists_every_command_on_stdout(command: Command) -> None:
    ran = command("--help")
    assert (ran.code, ran.err) == (0, "")
    for name in ("run", "validate", "inspect", "import", "pull", "list", "doctor"):
        assert f" {name} " in ran.out


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["run"], ["list", "--nonsense"], ["-v", "-q", "list"], ["run", "x", "y", "--top-k", "a"]],
)
def test_wrong_usage_is_exit_code_2_and_leaves_stdout_alone(command: Command, arguments: list[str]) -> None:
    ran = command(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err


def test_errors_are_one_line_and_a_hint_and_a_traceback_only_with_v(command: Command) -> None:
    ran = command("run", "smolm2-135m", "hi")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "error: 'smolm2-135m' is no folder, no metadata file and no known package",
        "hint: did you mean 'smollm2-135m'?",
    ]
    assert "Traceback" in command("-v", "run", "smolm2-135m", "hi").err


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


def test_a_closed_pipe_ends_quietly(process: Process) -> None:
    with process("doctor") as running:
        running.stdout.close()  # type: ignore[union-attr]
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait(60) == 0

"""The budgets of tools/: they find what they are for, and the project keeps them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import import_budget, size_budget

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = 1\n" * 300, []),
        ("x = 1\n" * 301, ["1: 301 lines, 300 allowed"]),
        ('"""A table.\n\nLonger than most\nmodules because it is one."""\n' + "x = 1\n" * 400, []),
        ("def f():\n" + "    x = 1\n" * 59, []),
        ("\ndef f():\n" + "    x = 1\n" * 60, ["2: f() has 61 lines, 60 allowed"]),
        ("class A:\n    async def g(self):\n" + "        x = 1\n" * 60, ["2: g() has 61 lines, 60 allowed"]),
    ],
)
def test_size_budget(tmp_path: Path, source: str, expected: list[str]) -> None:
    file = tmp_path / "module.py"
    file.write_text(source)
    assert [
        breach.removeprefix(f"{file}:")[: len(start)]
        for breach, start in zip(size_budget.breaches(file), expected, strict=True)
    ] == expected


def test_size_budget_of_a_folder_decides_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "long.py").write_text("x = 1\n" * 301)
    assert size_budget.main([str(tmp_path)]) == 1
    assert "long.py:1: 301 lines" in capsys.readouterr().out
    assert size_budget.main([str(ROOT / "tools")]) == 0


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["chat", "--help"], ["--version"], ["list"]])
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    allowed = {"yaml"} if arguments == ["list"] else set()
    assert import_budget.imported(arguments) & set(import_budget.HEAVY) <= allowed


def test_a_heavy_import_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert import_budget.main(["doctor"]) == 1
    assert "onnxruntime" in capsys.readouterr().out


def test_importing_the_package_alone_is_light() -> None:
    probe = "import sys, genai_pipeline; print(*(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(done.stdout.split()) & {*import_budget.HEAVY, "typer", "rich"}

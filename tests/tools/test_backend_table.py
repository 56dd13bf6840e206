"""The table of docs/backends.md: a row is what a comparison gave; a runtime that ends its process is a row too."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "backends.md"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("backend_table", ROOT / "tools" / "backend_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["backend_table"] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    return module


def component(name: str, **changes: Any) -> dict[str, Any]:
    plain = {"component": name, "nodes": {"cpu": 3}, "runs": 2, "worst": {}, "first_divergence": None, "error": None}
    return {**plain, "failed_at": None, **changes}


def report(*its: dict[str, Any], requests: Any = (), stopped: str = "", reached: int = 2) -> dict[str, Any]:
    own = [component(one["component"], runs=reached) for one in its]
    other = {"components": list(its), "requests": list(requests), "stopped": stopped}
    return {"inputs": ["prompt: hi"], "backends": [{"components": own}, other]}


@pytest.mark.parametrize(
    ("its", "said"),
    [
        (component("a", worst={"logits": {"max_absolute": 0.00012}}), "equal in 2 runs: logits 0.00012"),
        (component("a", nodes={"cpu": 1, "cuda": 2}, worst={"output": {"max_absolute": 0.0}}), "1 cpu, 2 cuda"),
        (
            component("a", worst={"state": {"max_absolute": 9.0}}, first_divergence={"port": "p", "step": 1}),
            "'p' diverges at step 1 of 2: state 9",
        ),
        (component("a", nodes={}, error={"message": "component 'a': no kernel for X"}), "| - | no kernel for X |"),
        (component("a", failed_at=1, error={"message": "component 'a' failed to run: y"}), "step 1: failed to run: y"),
    ],
)
def test_a_component_is_a_row(tool: ModuleType, its: dict[str, Any], said: str) -> None:
    (row,) = [row for row in tool.rendered([tool.Compared("p x", "o", report(its))]).splitlines() if "| a |" in row]
    assert said in row
    assert row.startswith("| p x | a | 3 cpu | `o` | ")


def test_what_was_not_reached_is_said(tool: ModuleType) -> None:
    assert "not reached" in tool.rendered([tool.Compared("p", "o", report(component("a", runs=0), reached=0))])


def test_requests_are_a_row(tool: ModuleType) -> None:
    run = {"tokens": 8, "equal": 7, "max_absolute": 0.0, "faults": ["token 7 is 1, not 2"]}
    text = tool.rendered([tool.Compared("p", "o", report(component("a"), requests=[run]))])
    assert "7 of 8 tokens equal; token 7 is 1, not 2" in text
    assert "not run" in tool.rendered([tool.Compared("p", "o", report(component("a")))])
    assert "- p: prompt: hi" in text


def test_a_comparison_without_a_report_is_a_row(tool: ModuleType) -> None:
    text = tool.rendered([tool.Compared("p", "o", None, "the process ended with signal 11")])
    assert "| p | all |  | `o` |  | the process ended with signal 11 |" in text


def test_why_there_is_no_report(tool: ModuleType) -> None:
    ended = subprocess.CompletedProcess[str]([], -11, "", "")
    assert tool._reason(ended) == "the process ended with signal 11"
    assert (
        tool._reason(subprocess.CompletedProcess[str]([], 5, "", "x\nerror: nxrt is not there\n"))
        == "nxrt is not there"
    )


def test_only_the_generated_part_is_replaced(tool: ModuleType) -> None:
    made = tool.page(f"before {tool.BEGIN} old {tool.END} after", [])
    assert made.startswith(f"before {tool.BEGIN}")
    assert made.endswith(f"{tool.END} after")
    assert " old " not in made
    with pytest.raises(SystemExit, match="no place for the table"):
        tool.page("nothing", [])


def test_the_page_has_rows_of_every_backend(tool: ModuleType) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(tool.BEGIN)
    table, end, _ = rest.partition(tool.END)
    assert end
    for other in tool.OTHERS:
        assert f"| `{other}` |" in table

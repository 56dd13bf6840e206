"""The real model by name through the command: float32 repeats the reference, in chunks too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CASES = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]
END = 2


RUNS = [*((case, ()) for case in CASES), (CASES[0], ("--prefill-chunk", 16))]


@pytest.mark.parametrize(("case", "options"), RUNS)
def test_greedy_tokens_are_the_references(
    command: Callable[..., Any], smollm2_f32: Path, case: dict[str, Any], options: tuple[Any, ...]
) -> None:
    expected = case["greedy_tokens"]
    greedy = ("--temperature", 0, "--max-new-tokens", len(expected), "--json", *options)
    ran = command("run", "smollm2-135m", case["prompt"], "--precision", "float32", *greedy)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["tokens"] == (expected[:-1] if expected[-1] == END else expected)
    assert found["usage"]["prompt_tokens"] == len(case["prompt_tokens"])
    assert found["finish_reason"] == ("stop" if expected[-1] == END else "length")


def test_the_default_precision_streams_text(command: Callable[..., Any], smollm2_fast: Path) -> None:
    ran = command("run", smollm2_fast, "Why is the sky blue?", "--temperature", 0, "--max-new-tokens", 24)
    assert ran.code == 0, ran.err
    assert "light" in ran.out
    assert ran.err == "note: the answer was cut at the token limit\n"

"""``score``: log probabilities of a text's tokens, as a table, as tabs, as JSON."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing import TinyPackage, write_package

Command = Callable[..., Any]


@pytest.fixture
def letters(tmp_path: Path) -> TinyPackage:
    return write_package(tmp_path / "letters", "flat", probabilities={"a": 0.4, "b": 0.3, "c": 0.2, "\n": 0.1})


def test_tokens_are_lines_with_tabs_where_a_program_reads(command: Command, letters: TinyPackage) -> None:
    ran = command("score", letters.path, "ab\na", "--raw", "--top", 2)
    ids = letters.vocabulary.id_list(["b", "\n", "a"])
    likeliest = '"a" -0.9163, "b" -1.2040'
    assert [line.split("\t") for line in ran.out.splitlines()] == [
        ["POSITION", "TOKEN", "TEXT", "LOGPROB", "LIKELIEST"],
        ["1", str(ids[0]), '"b"', "-1.2040", likeliest],
        ["2", str(ids[1]), '"\\n"', "-2.3026", likeliest],
        ["3", str(ids[2]), '"a"', "-0.9163", likeliest],
    ]
    total = math.log(0.3 * 0.1 * 0.4)
    assert ran.err == f"3 tokens, log probability {total:.4f}, perplexity {math.exp(-total / 3):.4f}\n"


def test_json_has_the_sum_and_every_token(command: Command, letters: TinyPackage) -> None:
    found = json.loads(command("score", letters.path, "-", "--raw", "--json", "--top", 1, stdin=b"ab\n").out)
    assert [token["text"] for token in found["tokens"]] == ["a", "b"]
    assert "logprob" not in found["tokens"][0]
    assert found["tokens"][1]["top"][0]["text"] == "a"
    assert found["logprob"] == pytest.approx(math.log(0.3), abs=1e-4)
    assert found["perplexity"] == pytest.approx(1 / 0.3, abs=1e-3)
    assert found["usage"]["completion_tokens"] == 0


def test_the_chat_template_is_scored_too_unless_raw(command: Command, letters: TinyPackage) -> None:
    def count(*options: str) -> int:
        return len(json.loads(command("score", letters.path, "ab", "--json", *options).out)["tokens"])

    assert count("--system", "a") > count() > count("--raw") == 2


def test_columns_are_aligned_on_a_terminal(process: Callable[..., Any], letters: TinyPackage) -> None:
    reader, tty = os.openpty()
    with process("score", letters.path, "abc", "--raw", stdout=tty, stderr=subprocess.PIPE) as running:
        os.close(tty)
        assert running.stderr is not None
        assert running.stderr.read().startswith("2 tokens")
        shown = os.read(reader, 4096).decode().splitlines()
    os.close(reader)
    assert shown[0].split() == ["POSITION", "TOKEN", "TEXT", "LOGPROB"]
    assert {line.index(word) for line, word in zip(shown, ("TEXT", '"b"', '"c"'), strict=True)} == {17}


@pytest.mark.parametrize("option", [["--top", 21], ["--threads", 0], ["--timeout", 0]])
def test_what_is_out_of_range_is_refused_by_its_flag(command: Command, letters: TinyPackage, option: list[Any]) -> None:
    ran = command("score", letters.path, "ab", *option)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {option[0]} must")

"""Values behind flags: pairs, JSON and files, each refused by flag, file and line where it cannot be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.cli.written import biases, json_of, pairs, text_of
from genai_pipeline.errors import OptionError

Command = Callable[..., Any]


def test_values_of_pairs_are_json_where_they_can_be() -> None:
    assert pairs("--param", ["a=1", "b=0.5", "c=true", "d=plain text", 'e="1"', "f=", "g=a=b"]) == {
        "a": 1,
        "b": 0.5,
        "c": True,
        "d": "plain text",
        "e": "1",
        "f": "",
        "g": "a=b",
    }
    for wrong in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(OptionError, match="--param"):
            pairs("--param", wrong)


def test_biases_are_numbers() -> None:
    assert biases("--logit-bias", ["5=-1.5", "6=2"]) == {"5": -1.5, "6": 2.0}
    for wrong in (["5"], ["5=much"], ["5=1", "5=1"]):
        with pytest.raises(OptionError, match="--logit-bias"):
            biases("--logit-bias", wrong)


def test_text_is_itself_or_a_files(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_bytes(b'\xef\xbb\xbf{"type": "object"}')
    assert text_of("--grammar", "start: X") == "start: X"
    assert json_of("--tools", "[1]") == [1]
    assert json_of("--json-schema", f"@{file}") == {"type": "object"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{}\n\xff", "is not UTF-8 in line 2"),
        (b'{\n "a": 1,\n}', "is not JSON: .*line 3, column 1"),
        (b"NaN", "is not JSON that can be used: NaN"),
        (b"[" * 100_000, "is not JSON that can be used"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_fault(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "file.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(OptionError, match=f"^--tools: {file} {says}"):
        json_of("--tools", f"@{file}")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--json-schema", "schema.json"], "--json-schema @schema.json"),
        (["--grammar", "words.lark"], "--grammar @words.lark"),
        (["--tools", "tools.json"], "--tools @tools.json"),
        (["--tools", "@absent.json"], "absent.json cannot be read"),
        (["--tools", "[{}]"], "tools[0].type must be 'function'"),
        (["--tool-choice", "add"], "--tool-choice names 'add'"),
        (["--no-parallel-tool-calls"], "has no effect without --tools"),
        (["--json-schema", '{"not": {}}'], "'not'"),
        (["--regex", "("], "--regex cannot be used"),
        (["--json-object", "--choice", "x"], "--json-object and --choice exclude each other"),
        (["--xtc-threshold", "0.2"], "--xtc-threshold has no effect without --xtc-probability"),
        (["--top-logprobs", "2"], "--top-logprobs has no effect without"),
        (["--logit-bias", "5=101"], "--logit-bias of token 5 must be a number between -100 and 100"),
        (["--reasoning-budget", "-1"], "--reasoning-budget must be at least 0"),
        (["--raw", "--reasoning-effort", "low"], "--reasoning-effort goes with"),
        (["--chat-template-kwargs", "tools=1"], "--chat-template-kwargs cannot set 'tools'"),
        (["--mirostat", "1"], "--mirostat must be 0 (off) or 2"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    ran = command("run", "smollm2-135m", "hello", *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err

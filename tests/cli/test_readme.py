"""The commands that README shows: each can be typed, and what it asks for passes all checks that need no package."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from genai_pipeline.cli.main import app
from genai_pipeline.cli.run_request import RunRequest

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    shlex.split(found[1], comments=True)
    for block in BLOCKS
    for line in block.splitlines()
    for command in line.split(" | ")
    if (found := re.search(r"(?:^|/)genai-pipeline (.*)", command))
]


def test_there_are_commands_and_each_kind_is_shown() -> None:
    shown = {"run", "chat", "score", "validate", "inspect", "import", "list", "pull", "bench", "doctor", "serve"}
    assert shown | {"transcribe", "speak", "embed", "init", "verify"} == {command[0] for command in COMMANDS}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_of_the_readme_can_be_typed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    given = command.make_context(command.name, words, resilient_parsing=False).params
    if command.name == "run":
        monkeypatch.chdir(tmp_path)
        for name in ("receipt.png", "cat.png", "dog.png", "speech.wav"):
            (tmp_path / name).touch()
        shown = re.search(r"`(\{\"type\": \"object\".*?\})`", README)
        assert shown is not None
        (tmp_path / "author.json").write_text(shown[1])
        (tmp_path / "tools.json").write_text(
            json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}])
        )
        asked = RunRequest.of(given, as_json=given["as_json"])
        assert "--json-schema" not in words or asked.options["response_format"]["type"] == "json_schema"

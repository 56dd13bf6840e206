"""Where the parts of an answer go: text and tool calls to stdout, reasoning and notes to stderr."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing import TinyPackage, write_package

Command = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ mood }}{{ reasoning_effort }}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = re.findall("tool|.", '<tool_call>{"name": "add", "arguments": {"x": 1}}</tool_call>')  # as it is tokenized
OTHER_CALL = ["2" if token == "1" else token for token in CALL]
PARAMETERS = {
    "type": "object",
    "properties": {"x": {"enum": [1, 2]}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOLS = json.dumps([{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}])
GREEDY = ("--temperature", 0)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., TinyPackage]:
    """``write("O", *CALL)``: a package that answers with this script, has tools and may reason."""

    def make(*script: str) -> TinyPackage:
        def edit(metadata: dict[str, Any]) -> None:
            metadata.update(tools={"format": "json_tagged"}, reasoning={"open": "<think>", "close": "</think>"})

        return write_package(
            tmp_path / "tools", "script", script=script, chat_template=TEMPLATE, edit=edit, context_length=1024
        )

    return make


def test_tool_calls_are_lines_of_json_behind_the_text(command: Command, write: Callable[..., TinyPackage]) -> None:
    package = write("O", " P", *CALL, *OTHER_CALL)
    ran = command("run", package.path, "hello", *GREEDY, "--tools", TOOLS)
    text, *calls = ran.out.splitlines()
    assert text == "O P"
    assert [json.loads(call)["function"] for call in calls] == [
        {"name": "add", "arguments": '{"x": 1}'},
        {"name": "add", "arguments": '{"x": 2}'},
    ]
    assert ran.err == "note: the answer ends with tool calls\n"
    found = json.loads(command("run", package.path, "hello", *GREEDY, "--tools", TOOLS, "--json").out)
    (choice,) = found["choices"]
    assert (choice["finish_reason"], len(choice["tool_calls"])) == ("tool_calls", 2)


def test_calls_without_text_are_lines_alone(command: Command, write: Callable[..., TinyPackage]) -> None:
    package = write(*CALL)
    for options in ((), ("--n", 2)):
        ran = command("run", package.path, "hello", *GREEDY, "--tools", TOOLS, *options)
        lines = [line for line in ran.out.splitlines() if not line.startswith("---")]
        assert [json.loads(line)["type"] for line in lines] == ["function"] * (2 if options else 1)


def test_tools_come_from_a_file_and_can_be_forced_forbidden_or_held_to_one(
    command: Command, write: Callable[..., TinyPackage], tmp_path: Path
) -> None:
    package = write(*CALL, "\n", *CALL)
    (tmp_path / "tools.json").write_text(TOOLS)

    def calls(*options: Any) -> int:
        ran = command("run", package.path, "hi", *GREEDY, "--tools", f"@{tmp_path}/tools.json", "--json", *options)
        assert ran.code == 0, ran.err
        return len(json.loads(ran.out)["choices"][0].get("tool_calls", ()))

    assert calls() == 2
    assert calls("--tool-choice", "none") == 0
    assert calls("--tool-choice", "required") == 2
    assert calls("--tool-choice", "required", "--no-parallel-tool-calls") == 1


def test_a_named_tool_must_be_called(command: Command, write: Callable[..., TinyPackage]) -> None:
    package = write("O", " P")
    ran = command("run", package.path, "hi", *GREEDY, "--tools", TOOLS, "--tool-choice", "add", "--reasoning-budget", 2)
    (line, *_) = ran.out.splitlines()
    assert json.loads(line)["function"]["name"] == "add"


def test_reasoning_goes_to_stderr(command: Command, write: Callable[..., TinyPackage]) -> None:
    package = write("<think>", "O", " P", "</think>", " Q", " R")
    ran = command("run", package.path, "hello", *GREEDY)
    assert (ran.out, ran.err) == (" Q R\n", "O P\n")
    assert command("-q", "run", package.path, "hello", *GREEDY).err == ""
    found = json.loads(command("run", package.path, "hello", *GREEDY, "--json").out)
    assert (found["text"], found["choices"][0]["reasoning"]) == (" Q R", "O P")
    several = command("run", package.path, "hello", *GREEDY, "--n", 2)
    assert several.out == "--- 1 of 2 (stop)\n Q R\n--- 2 of 2 (stop)\n Q R\n"
    assert several.err == "--- 1 of 2, reasoning\nO P\n--- 2 of 2, reasoning\nO P\n"


def test_a_budget_ends_reasoning(command: Command, write: Callable[..., TinyPackage]) -> None:
    package = write("<think>", *["O"] * 20, "</think>", " R")
    found = command("run", package.path, "hello", *GREEDY, "--reasoning-budget", 3, "--max-new-tokens", 9)
    assert found.err.splitlines()[0] == "OOO"


def test_reasoning_is_dim_on_a_terminal(process: Process, write: Callable[..., TinyPackage]) -> None:
    package = write("<think>", "O", "</think>", " R")
    reader, tty = os.openpty()
    with process("run", package.path, "hello", "--temperature", "0", stderr=tty, env={"TERM": "xterm"}) as running:
        os.close(tty)
        assert running.stdout is not None
        assert running.stdout.read() == " R\n"
        shown = os.read(reader, 4096).decode()
    os.close(reader)
    assert "\x1b[2mO\x1b[22m" in shown
    assert running.returncode == 0


@pytest.mark.parametrize("option", [["--chat-template-kwargs", "mood=glad"], ["--reasoning-effort", "low"]])
def test_the_template_gets_what_it_has_variables_for(
    command: Command, write: Callable[..., TinyPackage], tiny: TinyPackage, option: list[str]
) -> None:
    package = write("O")

    def prompt_tokens(*options: str) -> int:
        return int(json.loads(command("run", package.path, "hi", "--json", *options).out)["usage"]["prompt_tokens"])

    assert prompt_tokens(*option) > prompt_tokens()
    ran = command("run", tiny.path, "hi", *option)
    assert (ran.code, ran.out) == (2, "")
    assert "the chat template" in ran.err


def test_a_session_goes_on_in_its_file(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    file = tmp_path / "talk.safetensors"

    def turn(prompt: str, *options: Any) -> Any:
        ran = command("run", tiny.path, prompt, "--session", file, "--json", *options)
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["usage"]

    first = turn("hello", "--system", "be brief")
    second = turn("hello")
    alone = json.loads(command("run", tiny.path, "hello", "--system", "be brief", "--json").out)["usage"]
    assert first["prompt_tokens"] == alone["prompt_tokens"]
    assert second["prompt_tokens"] > first["prompt_tokens"] + first["completion_tokens"] - 1
    assert second["cached_tokens"] > 0
    streamed = command("run", tiny.path, "hello", "--session", file)
    assert (streamed.code, streamed.out, streamed.err) == (0, "O P Q R\n", "")
    before = file.read_bytes()
    late = command("run", tiny.path, "hello", "--session", file, "--system", "x")
    assert (late.code, late.out) == (2, "")
    assert "--system is for the first turn" in late.err
    assert file.read_bytes() == before


def test_a_session_that_cannot_be_is_said_before_anything_runs(
    command: Command, tiny: TinyPackage, tmp_path: Path
) -> None:
    for options in (["--n", 2], ["--raw"], ["--suffix", "x"]):
        ran = command("run", tiny.path, "hi", "--session", tmp_path / "new", *options)
        assert (ran.code, ran.out) == (2, "")
    for path in (tmp_path, tmp_path / "absent" / "file"):
        ran = command("run", tiny.path, "hi", "--session", path)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: --session {path} ")
    (tmp_path / "other").write_text("no checkpoint")
    ran = command("run", tiny.path, "hi", "--session", tmp_path / "other")
    assert ran.code == 1
    assert str(tmp_path / "other") in ran.err


def test_a_failed_turn_leaves_the_file_as_it_was(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    ran = command("run", tiny.path, "hi", "--session", tmp_path / "new", "--stop-token-id", 99999)
    assert ran.code == 2
    assert not (tmp_path / "new").exists()

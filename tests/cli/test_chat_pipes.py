"""``chat`` through pipes: the same bytes every time, answers alone on stdout, every ending with its exit code."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.media import write_embedder

Command = Callable[..., Any]
Process = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def endless(tmp_path: Path) -> TinyPackage:
    """A package that never ends by itself."""
    return write_package(tmp_path / "endless", "table", context_length=1 << 20)


@pytest.fixture
def piped(process: Process) -> Process:
    """``piped(folder)``: a chat in a process of its own, with bytes in and out."""

    def start(package: TinyPackage, *options: Any, **settings: Any) -> subprocess.Popen[bytes]:
        return process("chat", package.path, *options, text=False, bufsize=0, stdin=subprocess.PIPE, **settings)

    return start


def test_answers_are_alone_on_stdout_byte_for_byte(piped: Process, tiny: TinyPackage) -> None:
    for said in (b"hello\n\nagain\n", b"hello\r\nagain"):
        with piped(tiny) as running:
            out, errors = running.communicate(said, timeout=60)
        assert (running.returncode, out, errors) == (0, b"O P Q R\nO P Q R\n", b"")


def said_in(package: TinyPackage, file: Path) -> list[str]:
    with gp.load(package.path) as pipe, pipe.session(str(file)) as session:
        return [message["content"] for message in session.messages if message["role"] != "assistant"]


def test_messages_may_have_several_lines(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    typed = 'one\\\ntwo\n"""\nthree\n\n/exit\\\n"""\n//four\nfive\\\n'
    ran = command("chat", tiny.path, "--session", tmp_path / "kept", stdin=typed.encode())
    assert (ran.code, ran.out, ran.err) == (0, "O P Q R\n" * 4, "")
    assert said_in(tiny, tmp_path / "kept") == ["one\ntwo", "three\n\n/exit\\", "/four", "five"]


def test_a_conversation_goes_on_from_its_file(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    kept = ("--session", tmp_path / "kept")
    assert command("chat", tiny.path, *kept, "--system", "Be brief", stdin=b"one").code == 0
    assert command("chat", tiny.path, *kept, stdin=b"two\n/exit\nnever").code == 0
    assert said_in(tiny, tmp_path / "kept") == ["Be brief", "one", "two"]
    wrong = command("chat", tiny.path, "--session", tmp_path / "nowhere" / "kept", stdin=b"one")
    assert (wrong.code, wrong.out) == (2, "")


def test_what_commands_show_goes_to_stderr_and_is_plain(command: Command, tiny: TinyPackage) -> None:
    ran = command("chat", tiny.path, stdin=b"/help\n/params\n/fork\nhello\n/stats\n/system Be brief\n")
    assert (ran.code, ran.out) == (0, "O P Q R\n")
    assert "\x1b" not in ran.err
    assert "/rewind [TURNS]" in ran.err
    quiet = command("-q", "chat", tiny.path, stdin=b"/fork\nhello\n/system Be brief\n/nothing\n")
    assert (quiet.code, quiet.out) == (2, "O P Q R\n")
    assert quiet.err.splitlines()[0] == "*  main  0 turns"
    assert quiet.err.splitlines()[1] == "error: there is no command /nothing"


def test_the_first_error_is_the_exit_code_and_the_rest_is_said(command: Command, tiny: TinyPackage) -> None:
    ran = command("chat", tiny.path, stdin=b"\xff\xfe\nhello\n")
    assert (ran.code, ran.out) == (2, "O P Q R\n")
    assert ran.err.startswith("error: a line on stdin is not UTF-8")
    ran = command("chat", tiny.path, stdin=b'hello\n"""one\ntwo')
    assert (ran.code, ran.out) == (2, "O P Q R\n")
    assert ran.err == 'error: the input ended before the """ that ends the text\n'


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--temperature", "900"), 2, "--temperature must be between 0 and 100, not 900"),
        (("--reasoning-effort", "low"), 2, "has no way to state a --reasoning-effort of 'low'"),
        (("--provider", "cuda"), 5, "provider 'cuda' is not available"),
        (("--n", "2"), 2, "no such option: --n"),
    ],
)
def test_options_are_checked_before_anything_is_said(
    command: Command, tiny: TinyPackage, options: tuple[str, ...], code: int, message: str
) -> None:
    ran = command("chat", tiny.path, *options, stdin=b"hello\n")
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_options_hold_for_every_turn(command: Command, tiny: TinyPackage) -> None:
    ran = command("chat", tiny.path, "--stop", " Q", stdin=b"hello\nagain\n")
    assert (ran.code, ran.out) == (0, "O P\nO P\n")


def test_packages_that_cannot_chat_are_refused(command: Command, tmp_path: Path) -> None:
    mute = write_package(tmp_path / "mute", "script", chat_template=None)
    ran = command("chat", mute.path, stdin=b"hello\n")
    assert (ran.code, ran.out) == (2, "")
    assert "no chat template" in ran.err
    assert "--raw" not in ran.err
    asked = command("run", mute.path, "hello", "--session", tmp_path / "kept")
    assert (asked.code, "no chat template" in asked.err, "--raw" in asked.err) == (2, True, False)
    embedder = command("chat", write_embedder(tmp_path / "embedder").path, stdin=b"hello\n")
    assert (embedder.code, embedder.out) == (2, "")
    assert "makes no text token by token, so it holds no conversation" in embedder.err
    assert command("chat", tmp_path / "nowhere", stdin=b"hello\n").code == 2
    closed = command("chat", mute.path, stdin=None)
    assert (closed.code, closed.out) == (2, "")
    assert closed.err.startswith("error: nothing can be said: stdin is closed")


def test_tool_calls_are_lines_of_json(command: Command, tmp_path: Path) -> None:
    call = list('{"name": "f", "arguments": {}}')
    template = (
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    package = write_package(
        tmp_path / "calls",
        "script",
        script=("<think>", "O", "</think>", "<tool_call>", *call, "</tool_call>"),
        chat_template=template,
        edit=lambda found: found.update(
            tools={"format": "json_tagged"}, reasoning={"open": "<think>", "close": "</think>"}
        ),
        generation={"defaults": {"temperature": 0}},
        context_length=1024,
    )
    tools = '[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]'
    ran = command("chat", package.path, "--tools", tools, stdin=b"hello\n/tool 7\n")
    assert ran.code == 0, ran.err
    assert [json.loads(line)["function"] for line in ran.out.splitlines()] == [{"name": "f", "arguments": "{}"}] * 2
    assert ran.err == "O\nO\n"


def begun(running: subprocess.Popen[bytes], text: bytes) -> None:
    """Say something, and wait for the first byte of the answer."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(text)
    running.stdin.flush()
    assert running.stdout.read(1)


def test_an_interrupt_stops_the_answer_and_the_chat_goes_on(
    piped: Process, endless: TinyPackage, tmp_path: Path
) -> None:
    with piped(endless, "--session", tmp_path / "kept") as running:
        begun(running, b"hello\n")
        running.send_signal(signal.SIGINT)
        out, errors = running.communicate(b"/params max_new_tokens=2\nagain\n", timeout=60)
    assert running.returncode == 0
    assert out.startswith(b"ystem")
    assert out.endswith(b"\nsystemuser\n")
    stopped, shown, cut = errors.decode().splitlines()
    assert stopped.startswith("stopped: what was said so far is kept")
    assert (shown, cut) == ("max_new_tokens  2  set here", "note: the answer was cut at the token limit")
    assert said_in(endless, tmp_path / "kept") == ["hello", "again"]


def test_two_interrupts_leave(piped: Process, endless: TinyPackage) -> None:
    with piped(endless) as running:
        begun(running, b"hello\n")
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        assert running.stderr.readline().startswith(b"stopped")
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert running.stderr.read() == b""


def test_a_reader_that_leaves_ends_the_chat_quietly(piped: Process, endless: TinyPackage) -> None:
    with piped(endless) as running:
        begun(running, b"hello\n")
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait(60) == 0
        assert running.stderr is not None
        assert running.stderr.read() == b""


def test_a_full_disk_ends_the_chat(piped: Process, tiny: TinyPackage) -> None:
    with Path("/dev/full").open("wb") as full, piped(tiny, stdout=full) as running:
        _, errors = running.communicate(b"hello\nagain\n", timeout=60)
    assert running.returncode == 1
    assert errors.startswith(b"error: the output cannot be written")
    assert errors.count(b"error") == 1

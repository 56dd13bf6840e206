"""``chat`` on a terminal: keys, history, completion, and what is drawn."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.cli.chat.prompting import visible
from genai_pipeline.testing import TinyPackage, write_package

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
CTRL_C, CTRL_D, UP, ALT_ENTER, LEFT = b"\x03", b"\x04", b"\x1b[A", b"\x1b\r", b"\x1b[D"

_TAKEN = "\x1b[?2004l"  # what ends the editing of an input

# The terminal becomes the one whose Ctrl-C this process gets.
_LAUNCH = (
    "import fcntl, runpy, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "runpy.run_module('genai_pipeline', run_name='__main__')"
)


class Keyboard:
    """A chat on a terminal of its own."""

    def __init__(self, arguments: list[str], environment: dict[str, str], stdout: Any, *, edits: bool) -> None:
        self._drawn = b""
        self._edits = edits
        self._end, terminal = os.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _LAUNCH, "chat", *arguments],
            stdin=terminal,
            stdout=stdout or terminal,
            stderr=terminal,
            env=environment,
            start_new_session=True,
        )
        os.close(terminal)

    def type(self, keys: str | bytes) -> None:
        """Press keys."""
        os.write(self._end, keys.encode() if isinstance(keys, str) else keys)

    def until(self, text: str) -> str:
        """What is drawn up to some text."""
        while text.encode() not in self._drawn:
            self._drawn += self._read()
        drawn, found, self._drawn = self._drawn.partition(text.encode())
        return (drawn + found).decode("utf-8", errors="replace")

    def rest(self) -> str:
        """What is drawn up to the end."""
        while piece := self._read():
            self._drawn += piece
        return self._drawn.decode("utf-8", errors="replace")

    def say(self, keys: str | bytes, until: str = "main>") -> str:
        """Type a whole input, and see what comes of it."""
        self.type(keys)
        self.type(b"\r")
        if self._edits:
            self.until(_TAKEN)
        return self.until(until)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)
        os.close(self._end)

    def _read(self) -> bytes:
        ready, _, _ = select.select([self._end], [], [], SECONDS)
        assert ready, "the terminal is silent"
        try:
            return os.read(self._end, 4096)
        except OSError:  # nobody has the other end any more
            return b""


Sit = Callable[..., Keyboard]


@pytest.fixture
def sit(tmp_path: Path) -> Iterator[Sit]:
    """``sit(folder, "--no-history")``: somebody at a terminal, who sees the first prompt."""
    seated = []

    def sit_down(
        package: TinyPackage, *options: Any, stdout: Any = None, edits: bool = True, **variables: str
    ) -> Keyboard:
        home = str(tmp_path / "home")
        settings = {"PYTHONPATH": str(ROOT), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "GENAI_PIPELINE_HOME": home}
        arguments = [str(package.path), *map(str, options)]
        seated.append(Keyboard(arguments, {**os.environ, **settings, **variables}, stdout, edits=edits))
        seated[-1].until("main>")
        return seated[-1]

    yield sit_down
    for keyboard in seated:
        keyboard.close()


@pytest.fixture
def endless(tmp_path: Path) -> TinyPackage:
    """A package that never ends by itself."""
    return write_package(tmp_path / "endless", "table", context_length=1 << 20)


def said_in(package: TinyPackage, file: Path) -> list[str]:
    with gp.load(package.path) as pipe, pipe.session(str(file)) as session:
        return [message["content"] for message in session.messages if message["role"] == "user"]


def plain(drawn: str) -> str:
    """What is drawn without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r", "")


def test_ctrl_c_stops_an_answer_and_twice_leaves(sit: Sit, endless: TinyPackage) -> None:
    keyboard = sit(endless)
    keyboard.say("hello", until="STUVW")
    keyboard.type(CTRL_C)
    assert "stopped: what was said so far is kept" in keyboard.until("main>")
    keyboard.say("/params max_new_tokens=2")
    assert "cut at the token limit" in keyboard.say("again")
    keyboard.type(b"something\x03")  # empties the line
    keyboard.type(CTRL_C)
    keyboard.until("Ctrl-C again leaves")
    keyboard.until("main>")
    keyboard.type(CTRL_C)
    keyboard.rest()
    assert keyboard.process.wait(SECONDS) == 130


def test_lines_are_edited_and_go_on(sit: Sit, tiny: TinyPackage, tmp_path: Path) -> None:
    keyboard = sit(tiny, "--session", tmp_path / "kept")
    assert "O P Q R\n" in plain(keyboard.say(b"helo" + LEFT + b"l"))
    keyboard.say(b"one" + ALT_ENTER + b"two")
    keyboard.say(b"three\\\rfour")
    keyboard.say(b"\x1b[200~five\nsix\x1b[201~")  # pasted
    keyboard.type(CTRL_D)
    keyboard.rest()
    assert keyboard.process.wait(SECONDS) == 0
    assert said_in(tiny, tmp_path / "kept") == ["hello", "one\ntwo", "three\nfour", "five\nsix"]


def test_what_was_typed_comes_back_in_the_next_chat(sit: Sit, tiny: TinyPackage, tmp_path: Path) -> None:
    keyboard = sit(tiny)
    keyboard.say(b"first" + ALT_ENTER + b"of all")
    keyboard.say("/rewind")
    keyboard.type(b"/exit\r")
    keyboard.rest()
    again = sit(tiny, "--session", tmp_path / "kept")
    again.type(UP * 4)  # /exit, /rewind, and the two lines
    again.until("first")
    again.say(b"")
    again.type(CTRL_D)
    again.rest()
    assert said_in(tiny, tmp_path / "kept") == ["first\nof all"]
    (tmp_path / "home" / "chat_history.jsonl").unlink()
    secret = sit(tiny, "--no-history")
    secret.say("hush")
    secret.type(CTRL_D)
    secret.rest()
    assert not (tmp_path / "home" / "chat_history.jsonl").exists()


def test_commands_and_what_they_take_are_completed(sit: Sit, tiny: TinyPackage) -> None:
    keyboard = sit(tiny)
    keyboard.type(b"/fo\t")
    keyboard.until("rk")
    keyboard.say(b" side", until="side>")
    keyboard.type(b"/params temperat\t")
    keyboard.until("ure=")
    assert "temperature  1.5  set here" in plain(keyboard.say("1.5", until="set here"))


def test_reasoning_is_dim_and_control_characters_are_pictures(sit: Sit, tmp_path: Path) -> None:
    package = write_package(
        tmp_path / "think",
        "script",
        script=("<think>", "O", " P", "</think>", " Q", "\x1b[2J"),
        edit=lambda found: found.update(reasoning={"open": "<think>", "close": "</think>"}),
        generation={"defaults": {"temperature": 0}},
    )
    keyboard = sit(package)
    drawn = keyboard.say("hello")
    assert "\x1b[2mO\x1b[0m\x1b[2m P\x1b[0m\r\n Q␛[2J\r\n" in drawn


def test_visible_text() -> None:
    assert visible("a\tb\né→\x00\x1b\x7f\x9b") == "a\tb\né→␀␛␡\ufffd"


def test_without_the_extra_lines_are_read_plainly(sit: Sit, tiny: TinyPackage, tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "prompt_toolkit"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ModuleNotFoundError(name='prompt_toolkit')\n")
    keyboard = sit(tiny, edits=False, PYTHONPATH=f"{absent.parent}:{ROOT}")
    assert "O P Q R\r\n" in keyboard.say("hello")
    keyboard.type(CTRL_D)
    assert "\x1b" not in keyboard.rest()
    assert keyboard.process.wait(SECONDS) == 0


def test_a_chat_into_a_file_asks_on_the_terminal(sit: Sit, tiny: TinyPackage, tmp_path: Path) -> None:
    with (tmp_path / "answers").open("wb") as file:
        keyboard = sit(tiny, stdout=file, edits=False)
        keyboard.say("hello")
        keyboard.type(CTRL_D)
        keyboard.rest()
        assert keyboard.process.wait(SECONDS) == 0
    assert (tmp_path / "answers").read_bytes() == b"O P Q R\n"

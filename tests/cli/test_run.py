"""``run``: the answer on stdout and nothing else, every option with its effect, every ending with its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.cli.output import Output
from genai_pipeline.testing import TinyPackage, write_package

Command = Callable[..., Any]
Process = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def endless(tmp_path: Path) -> TinyPackage:
    """A package that never ends by itself, with a context long enough to be interrupted in."""
    return write_package(tmp_path / "endless", "table", context_length=1 << 20)


def test_the_answer_is_the_packages_and_alone_on_stdout(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello")
    assert ran.code == 0
    assert ran.out == "O P Q R\n"
    assert ran.err == ""


def test_json_has_the_fields_of_the_python_result(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--json")
    found = json.loads(ran.out)
    with gp.load(tiny.path) as pipe:
        expected = pipe.generate("hello").to_dict()
    assert list(found) == list(expected)
    for name in ("text", "tokens", "finish_reason", "choices", "usage"):
        assert found[name] == expected[name]


def test_stats_go_to_stderr(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--stats")
    assert ran.out == "O P Q R\n"
    assert "5 completion tokens" in ran.err
    assert command("-q", "run", tiny.path, "hello", "--stats").err == ""


def test_profile_writes_a_trace(command: Command, tiny: TinyPackage, tmp_path: Path) -> None:
    ran = command("run", tiny.path, "hello", "--profile", tmp_path / "trace.json")
    assert (ran.code, ran.out) == (0, "O P Q R\n")
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text())]
    assert names.count("decode") > names.count("prefill") > 0


def test_a_prompt_comes_from_stdin_without_its_last_line_end(command: Command, tiny: TinyPackage) -> None:
    said = command("run", tiny.path, "hello", "--json")
    read = command("run", tiny.path, "-", "--json", stdin=b"hello\r\n")
    assert json.loads(read.out)["usage"] == json.loads(said.out)["usage"]
    wrong = command("run", tiny.path, "-", stdin=b"\xff\xfe")
    assert (wrong.code, wrong.out) == (2, "")
    assert "UTF-8" in wrong.err


def test_a_missing_prompt_is_asked_for(command: Command, tiny: TinyPackage) -> None:
    for package in (tiny.path, "smollm2-135m"):  # found out without pulling
        ran = command("run", package)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("error: no prompt")


def test_a_declared_default_stands_in_for_the_prompt(command: Command, tmp_path: Path) -> None:
    inputs = {"prompt": {"modality": "text", "default": "hello"}}
    package = write_package(tmp_path / "tiny", "script", edit=lambda metadata: metadata.update(inputs=inputs))
    said, unsaid = (
        json.loads(command("run", package.path, *prompt, "--json", "--temperature", 0).out)
        for prompt in (["hello"], [])
    )
    assert said["usage"] == unsaid["usage"]
    assert said["tokens"] == unsaid["tokens"]


def test_a_closed_stdin_is_no_prompt(command: Command, tiny: TinyPackage, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = command("run", tiny.path, "-", stdin=b"")  # what should have written there has failed
    assert (empty.code, empty.out) == (2, "")
    assert "no prompt was given: stdin is empty" in empty.err
    ran = command("run", tiny.path, "-", stdin=None)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: no prompt was given: stdin is closed")


def test_raw_and_system_change_the_prompt(command: Command, tiny: TinyPackage) -> None:
    def prompt_tokens(*options: str) -> int:
        return int(json.loads(command("run", tiny.path, "hello", "--json", *options).out)["usage"]["prompt_tokens"])

    assert prompt_tokens("--raw") < prompt_tokens() < prompt_tokens("--system", "hello hello")
    both = command("run", tiny.path, "hello", "--raw", "--system", "x")
    assert (both.code, both.out) == (2, "")


def test_limits_and_stops_have_their_effect(command: Command, tiny: TinyPackage) -> None:
    cut = command("run", tiny.path, "hello", "--max-new-tokens", "2")
    assert cut.out == "O P\n"
    assert cut.err == "note: the answer was cut at the token limit\n"
    assert command("run", tiny.path, "hello", "--stop", " Q", "--stop", "zzz").out == "O P\n"
    stop = tiny.vocabulary.id_list([" R"])[0]
    assert command("run", tiny.path, "hello", "--stop-token-id", stop).out == "O P Q\n"


@pytest.mark.parametrize("option", ["--temperature", "--top-k", "--top-p", "--min-p"])
def test_sampling_options_change_what_is_drawn(command: Command, tmp_path: Path, option: str) -> None:
    flat = write_package(tmp_path / "flat", "flat", probabilities={"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1})
    narrow = {"--temperature": "0", "--top-k": "1", "--top-p": "0.001", "--min-p": "1"}[option]
    (likeliest,) = flat.vocabulary.id_list(["a"])

    def tokens(*options: str) -> list[int]:
        limits = ("--seed", "5", "--max-new-tokens", "40", "--ignore-eos", "--json")
        return list(json.loads(command("run", flat.path, "hello", *limits, *options).out)["tokens"])

    assert len(set(tokens())) == 4
    assert tokens() == tokens()
    assert tokens(option, narrow) == [likeliest] * 40


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-1"),
        ("--top-p", "0"),
        ("--top-k", "-1"),
        ("--min-p", "2"),
        ("--max-new-tokens", "0"),
        ("--seed", "-1"),
        ("--threads", "0"),
        ("--prefill-chunk", "0"),
        ("--min-new-tokens", "-1"),
        ("--stop-token-id", "-1"),
        ("--timeout", "nan"),
        ("--timeout", "inf"),
        ("--timeout", "0"),
        ("--timeout", "-1"),
        ("--memory", "lots"),
        ("--n", "0"),
        ("--context-length", "1"),
    ],
)
def test_what_is_out_of_range_is_refused_by_its_flag_before_anything_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setenv("GENAI_PIPELINE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GENAI_PIPELINE_OFFLINE", "1")
    ran = command("run", "smollm2-135m", "hello", option, value)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {option} ")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--param", "nonsense"),
        ("--param", "speed=2"),
        ("--precision", "fast"),
        ("--stop-token-id", "99999"),
        ("--context-length", "99999"),
        ("--priority", "urgent"),
    ],
)
def test_what_this_package_or_nobody_knows_is_refused(
    command: Command, tiny: TinyPackage, option: str, value: str
) -> None:
    ran = command("run", tiny.path, "hello", option, value)
    assert (ran.code, ran.out) == (2, "")
    assert "rror" in ran.err


def test_several_choices_are_printed_one_below_the_other(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--n", 2)
    assert ran.out == "--- 1 of 2 (stop)\nO P Q R\n--- 2 of 2 (stop)\nO P Q R\n"
    assert len(json.loads(command("run", tiny.path, "hello", "--n", 2, "--json").out)["choices"]) == 2


def test_load_and_queue_options_reach_the_pipeline(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--memory", "16MiB", "--no-prefix-cache", "--priority", "high")
    assert (ran.code, ran.out, ran.err) == (0, "O P Q R\n", "")


def test_an_invalid_package_is_exit_code_3_with_all_its_problems(command: Command, broken: TinyPackage) -> None:
    ran = command("run", broken.path, "hello")
    assert (ran.code, ran.out) == (3, "")
    assert "did you mean 'limits'?" in ran.err
    assert "Traceback" not in ran.err


def test_a_template_that_fails_is_named_with_its_line(command: Command, tmp_path: Path) -> None:
    package = write_package(tmp_path / "tiny", "script", chat_template="one\n{{ missing.field }}\n")
    ran = command("run", package.path, "hello")
    assert (ran.code, ran.out) == (2, "")
    assert f"at line 2 of {package.path}/chat_template.jinja: 'missing' is undefined" in ran.err
    assert "hint: " in ran.err


def test_a_provider_that_is_not_there_is_exit_code_5(command: Command, tiny: TinyPackage) -> None:
    ran = command("run", tiny.path, "hello", "--provider", "cuda")
    assert (ran.code, ran.out) == (5, "")


def test_ctrl_c_ends_quietly_with_130(process: Process, endless: TinyPackage) -> None:
    with process("run", endless.path, "hello") as running:
        assert running.stdout is not None
        assert running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130, "")


def test_a_reader_that_leaves_ends_the_run_quietly(process: Process, endless: TinyPackage) -> None:
    with process("run", endless.path, "hello") as running:
        assert running.stdout is not None
        assert running.stdout.read(1)
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait(60) == 0


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a terminal: what reads it, and what a command gets as stdout and stderr."""
    ends = os.openpty()
    yield ends
    os.close(ends[0])


def shown(reader: int, until: bytes = b"") -> bytes:
    """What a terminal shows up to some text, or to the end of all that write to it."""
    text = b""
    while not until or until not in text:
        try:
            text += os.read(reader, 4096)
        except OSError:  # nobody has the other end any more
            break
    return text


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_a_terminal_gets_no_more_than_there_is_to_show(
    process: Process, endless: TinyPackage, terminal: tuple[int, int], kind: str
) -> None:
    reader, tty = terminal
    arguments = ("run", endless.path, "hello", "--ignore-eos", "--max-new-tokens", "1500", "--seed", "1")
    with process(*arguments, stderr=tty, env={"TERM": kind}) as running:
        os.close(tty)
        assert running.stdout is not None
        assert running.stdout.read()
        text = shown(reader)
        assert running.wait(60) == 0
    assert b"\x1b[2K" not in text
    assert kind != "dumb" or b"\x1b" not in text


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_bars_are_drawn_from_the_first_report_on_where_they_can_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Output().progress():
        pass
    assert capsys.readouterr().err == ""
    with Output().progress() as progress:
        progress("reading", 0, 10)
        progress("reading", 10, 10)
    said = capsys.readouterr().err
    assert ("\x1b" in said) == (kind == "xterm")
    assert "reading" in said


@pytest.mark.parametrize("ending", ["interrupt", "error"])
def test_on_a_terminal_an_ending_in_mid_answer_begins_a_new_line(
    process: Process, endless: TinyPackage, terminal: tuple[int, int], ending: str
) -> None:
    reader, tty = terminal
    limit = ["--ignore-eos", "--timeout", "4"] if ending == "error" else []
    with process("run", endless.path, "hello", *limit, stdout=tty, stderr=tty) as running:
        os.close(tty)
        text = shown(reader, b"STUVW")
        if ending == "interrupt":
            running.send_signal(signal.SIGINT)
        text += shown(reader)
        assert running.wait(60) == {"interrupt": 130, "error": 1}[ending]
    last = text.replace(b"\r", b"").split(b"STUVW", 1)[1]
    assert last.endswith(b"\n")
    if ending == "error":
        assert last.endswith(b"\nerror: the request's timeout ran out\n")


def test_a_long_wait_on_a_terminal_is_explained_and_then_wiped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shows: list[Callable[[], None]] = []

    class Clock:
        """A timer whose second passes when the test says so."""

        def __init__(self, seconds: float, show: Callable[..., None], arguments: tuple[str, ...]) -> None:
            self.finished = threading.Event()
            self.start = lambda: shows.append(lambda: show(*arguments))
            self.cancel = self.finished.set

    monkeypatch.setattr(threading, "Timer", Clock)
    with Output().waiting("reading ...") as come:
        shows[0]()
        come()
        come()
    with Output().waiting("reading ..."):
        pass
    shows[1]()
    assert capsys.readouterr().err == "reading ...\r\x1b[K"
    with Output(verbosity=-1).waiting("reading ..."):
        assert len(shows) == 2

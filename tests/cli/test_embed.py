"""``embed``: vectors beside their texts, as lines or one array, of arguments and of a long stdin."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.cli.embedding import _TOGETHER
from genai_pipeline.cli.output import Output
from genai_pipeline.testing import TinyPackage
from genai_pipeline.testing.media import MediaPackage, write_embedder

Command = Callable[..., Any]
Process = Callable[..., "subprocess.Popen[bytes]"]
TEXTS = ["200Hz", "400Hz 400Hz 200Hz", "200Hz 1600Hz"]


@pytest.fixture
def embedder(tmp_path: Path) -> MediaPackage:
    """Counts the words of pitches, and scales the counts to length 1."""
    return write_embedder(tmp_path / "embedder")


def vector(text: str) -> list[float]:
    counts = np.array([text.split().count(f"{pitch}Hz") for pitch in range(200, 1601, 200)], np.float32)
    return list(counts / max(1.0, float(np.linalg.norm(counts))))


def rows_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_each_text_stands_beside_its_vector(command: Command, embedder: MediaPackage) -> None:
    ran = command("embed", embedder, *TEXTS)
    assert (ran.code, ran.err) == (0, "")
    rows = rows_of(ran.out)
    assert [row["text"] for row in rows] == TEXTS
    np.testing.assert_allclose([row["embedding"] for row in rows], [vector(text) for text in TEXTS], atol=1e-6)


@pytest.mark.parametrize("words", [[], ["-"]])
def test_every_line_of_stdin_is_a_text_an_empty_one_too(
    command: Command, embedder: MediaPackage, words: list[str]
) -> None:
    ran = command("embed", embedder, *words, stdin=b"200Hz\n\n400Hz\r\n600Hz")
    assert [row["text"] for row in rows_of(ran.out)] == ["200Hz", "", "400Hz", "600Hz"]
    assert rows_of(ran.out)[1]["embedding"] == [0.0] * 8


def test_an_array_has_a_row_for_each_text(command: Command, embedder: MediaPackage, tmp_path: Path) -> None:
    out = tmp_path / "v.npy"
    ran = command("embed", embedder, *TEXTS, "--format", "npy", "--out", out)
    assert (ran.code, ran.out) == (0, "")
    found = np.load(out)
    assert (found.dtype, found.shape) == (np.float32, (3, 8))
    with gp.load(embedder) as pipe:
        np.testing.assert_array_equal(found, pipe.embed(TEXTS))


def test_ten_thousand_lines_come_as_they_are_read(process: Process, embedder: MediaPackage) -> None:
    lines = [f"{200 * (1 + number % 8)}Hz" for number in range(10_000)]
    first = "".join(f"{line}\n" for line in lines[:_TOGETHER]).encode()
    rest = "".join(f"{line}\n" for line in lines[_TOGETHER:]).encode()
    with process("embed", embedder, text=False, stdin=subprocess.PIPE) as running:
        running.stdin.write(first)
        running.stdin.flush()
        rows = [running.stdout.readline() for _ in range(_TOGETHER)]  # before anything more is read
        out, errors = running.communicate(rest, timeout=120)
    assert (running.returncode, errors) == (0, b"")
    found = rows_of(b"".join([*rows, out]).decode())
    assert [row["text"] for row in found] == lines
    assert all(row["embedding"][number % 8] == 1.0 for number, row in enumerate(found))


def test_an_array_through_a_pipe_is_the_same_file(process: Process, embedder: MediaPackage) -> None:
    with process("embed", embedder, *TEXTS, "--format", "npy", text=False) as running:
        out, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (0, b"")
    np.testing.assert_allclose(np.load(io.BytesIO(out)), [vector(text) for text in TEXTS], atol=1e-6)


def test_fewer_dimensions_have_length_one_again(command: Command, embedder: MediaPackage) -> None:
    (row,) = rows_of(command("embed", embedder, "200Hz 400Hz 800Hz", "--dimensions", 2).out)
    np.testing.assert_allclose(row["embedding"], [0.5**0.5] * 2, atol=1e-6)
    (row,) = rows_of(command("embed", embedder, "800Hz", "--dimensions", 2).out)
    assert row["embedding"] == [0.0, 0.0]
    ran = command("embed", embedder, "200Hz", "--dimensions", 9)
    assert (ran.code, ran.out, ran.err) == (2, "", "error: --dimensions must be between 1 and 8, not 9\n")
    assert command("embed", embedder, "200Hz", "--dimensions", 0).code == 2


@pytest.mark.parametrize("form", ["jsonl", "npy"])
def test_no_text_is_an_error_or_nothing(command: Command, embedder: MediaPackage, form: str) -> None:
    ran = command("embed", embedder, "--format", form)
    said = "error: there is no text to embed\n" if form == "npy" else ""
    assert (ran.code, ran.out, ran.err) == (2 if said else 0, "", said)
    ran = command("embed", embedder, "--format", form, stdin=None)
    assert (ran.code, ran.err) == (2, "error: there is no text: stdin is closed\n")


def test_faults_are_named_with_their_line(command: Command, embedder: MediaPackage) -> None:
    ran = command("embed", embedder, stdin=b"200Hz\n" * _TOGETHER + b"\xff\n")
    assert (ran.code, len(rows_of(ran.out))) == (2, _TOGETHER)
    assert ran.err.startswith(f"error: line {_TOGETHER + 1} of stdin is not UTF-8")


def test_what_cannot_be_is_refused(command: Command, embedder: MediaPackage, tiny: TinyPackage, tmp_path: Path) -> None:
    ran = command("embed", "minilm", "x", "--out", tmp_path / "no" / "v.jsonl")  # before it is fetched
    assert (ran.code, ran.err.splitlines()[0].endswith(f"there is no folder {tmp_path}/no")) == (2, True)
    ran = command("embed", tiny.path)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: the package 'tiny-script' does not embed")
    ran = command("embed", embedder, "200Hz", "--param", "x=1")
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: 'tiny-embedder' has no parameter 'x'")


def test_a_full_disk_and_a_reader_that_has_enough(process: Process, embedder: MediaPackage, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, process("embed", embedder, *TEXTS, stdout=full) as running:
        errors: Any = running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert errors.startswith("error: the output cannot be written")
    lines = tmp_path / "lines"
    lines.write_text("200Hz\n" * 20_000)
    with lines.open("rb") as given, process("embed", embedder, text=False, bufsize=0, stdin=given) as running:
        assert running.stdout.read(5)
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_on_a_terminal_a_long_stdin_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    now = iter([0.0, 0.5, 1.5, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    with Output().counting("texts") as count:
        count(256)  # soon enough
        count(5120)
        count(10_000)
    assert capsys.readouterr().err == "\r\x1b[K5,120 texts\r\x1b[K10,000 texts\r\x1b[K"
    with Output(verbosity=-1).counting("texts") as count:
        count(5120)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)  # lines of vectors are seen there
    with Output().counting("texts") as count:
        count(5120)
    assert capsys.readouterr().err == ""

"""``speak``: the sound in files and pipes, with a header that is right wherever it can be, and every ending."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.cli.speaking import _sound_file
from genai_pipeline.ops.media import Audio, wav_header
from genai_pipeline.testing import TinyPackage
from genai_pipeline.testing.voices import RATE, SAMPLES, spoken, write_speaker

Command = Callable[..., Any]
Process = Callable[..., "subprocess.Popen[bytes]"]
TEXT = "one two three"


@pytest.fixture
def speaker(tmp_path: Path) -> Path:
    return write_speaker(tmp_path / "speaker")


@pytest.fixture
def expected(speaker: Path) -> bytes:
    """The 16-bit samples of the text."""
    with gp.load(speaker) as pipe:
        return Audio(np.array(spoken(pipe.tokenize(TEXT)), np.float32), RATE).pcm()


def samples_of(wav: bytes) -> bytes:
    with wave.open(io.BytesIO(wav)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        return file.readframes(file.getnframes())


def test_a_file_has_its_length_and_stdout_nothing(
    command: Command, speaker: Path, expected: bytes, tmp_path: Path
) -> None:
    ran = command("speak", speaker, TEXT, "--out", tmp_path / "a.wav")
    assert (ran.code, ran.out) == (0, "")
    assert (tmp_path / "a.wav").read_bytes() == wav_header(RATE, 1, len(expected)) + expected
    assert "s of sound in" in ran.err
    assert "of its length; first after" in ran.err
    ran = command("-q", "speak", speaker, "-", "--pcm", "-o", tmp_path / "a.pcm", stdin=f"{TEXT}\n".encode())
    assert (ran.code, ran.err, (tmp_path / "a.pcm").read_bytes()) == (0, "", expected)


@pytest.fixture
def to_stdout(process: Process, speaker: Path) -> Callable[..., bytes]:
    """What a process of its own writes where stdout goes."""

    def run(*options: Any, stdout: Any = subprocess.PIPE) -> bytes:
        with process("speak", speaker, TEXT, *options, text=False, stdout=stdout) as running:
            out, errors = running.communicate(timeout=60)
        assert (running.returncode, b"error" in errors) == (0, False)
        return out or b""

    return run


def test_a_pipe_gets_a_header_without_length_and_a_file_one_with_it(
    to_stdout: Any, expected: bytes, tmp_path: Path
) -> None:
    assert to_stdout() == wav_header(RATE) + expected
    assert to_stdout("--pcm") == expected
    path = tmp_path / "a.wav"
    with path.open("wb") as file:
        to_stdout(stdout=file)
    assert samples_of(path.read_bytes()) == expected
    with path.open("wb") as file:
        file.write(b"before")
        file.flush()
        to_stdout(stdout=file)
        file.write(b"after")
    assert path.read_bytes() == b"before" + wav_header(RATE, 1, len(expected)) + expected + b"after"
    path.write_bytes(b"before")
    with path.open("ab") as file:
        to_stdout(stdout=file)
    assert path.read_bytes() == b"before" + wav_header(RATE) + expected  # what is there is not written over


def test_what_came_stays_when_the_rest_fails(tmp_path: Path) -> None:
    piece = Audio(np.full(100, 0.5, np.float32), RATE)
    path = tmp_path / "a.wav"

    def interrupted() -> None:
        with path.open("wb") as file, _sound_file(file, piece, wav=True) as written:
            written.add(piece)
            written.add(piece)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert samples_of(path.read_bytes()) == piece.pcm() * 2


def test_ctrl_c_leaves_a_whole_file(process: Process, tmp_path: Path) -> None:
    def slow(metadata: dict[str, Any]) -> None:
        metadata["stages"][1]["over"]["chunk"] = 1

    speaker, out = write_speaker(tmp_path / "slow", edit=slow), tmp_path / "a.wav"
    text = tmp_path / "text"
    text.write_text("one two three " * 5_000)
    with (
        text.open("rb") as said,
        process("speak", speaker, "-", "-o", out, text=False, stdin=said) as running,
    ):
        while running.poll() is None and (not out.exists() or out.stat().st_size < 10_000):
            os.sched_yield()
        running.send_signal(signal.SIGINT)
        errors = running.communicate(timeout=60)[1]
    assert (running.returncode, errors) == (130, b"")
    kept = samples_of(out.read_bytes())
    assert len(kept) == out.stat().st_size - 44
    assert len(kept) % (2 * SAMPLES) == 0
    assert len(kept) >= 10_000 - 44


def test_a_reader_that_has_enough_ends_it_quietly(process: Process, tmp_path: Path, speaker: Path) -> None:
    text = tmp_path / "text"
    text.write_text(TEXT * 20_000)
    with (
        text.open("rb") as said,
        process("speak", speaker, "-", text=False, bufsize=0, stdin=said) as running,
    ):
        assert running.stdout.read(44) == wav_header(RATE)
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0


def test_a_full_disk_is_a_named_error(process: Process, command: Command, speaker: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, process("speak", speaker, TEXT, stdout=full) as running:
        errors: Any = running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert errors.startswith("error: the output cannot be written: No space left on device\n")
    ran = command("speak", speaker, TEXT, "--out", "/dev/full")
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: /dev/full cannot be written: No space left on device")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["hello", "--out", "nowhere/a.wav"], "--out nowhere/a.wav cannot be written: there is no folder nowhere"),
        (["hello", "--out", "."], "--out . cannot be written: it is a folder"),
        (["--out", "a.wav"], "no prompt was given"),
        (["hello", "--out", "a.wav", "--seed", "-1"], "--seed must be"),
    ],
)
def test_what_cannot_be_is_refused_before_a_package_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = command("speak", "piper-joe", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {says}")
    assert list(tmp_path.iterdir()) == []


def test_packages_and_parameters_that_do_not_fit_are_named(
    command: Command, speaker: Path, tiny: TinyPackage, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "a.wav")
    ran = command("speak", tiny.path, "hello", *out)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: the package 'tiny-script' does not speak")
    ran = command("speak", speaker, "hello", *out, "--param", "sped=2")
    assert (ran.code, ran.err) == (2, "error: 'tiny-speaker' has no parameter 'sped'\nhint: did you mean 'speed'?\n")
    ran = command("speak", speaker, "", *out)
    assert ran.code in (1, 2)
    assert ran.err.startswith("error: ")
    assert not (tmp_path / "a.wav").exists()

"""The commands on real weights: recorded speech told live, silence without words, and a voice that is understood."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np

from genai_pipeline.ops.media import wav_header

ROOT = Path(__file__).resolve().parents[2]
BECKETT = "ever tried ever failed no matter try again fail again fail better"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND = [sys.executable, "-W", "error", "-m", "genai_pipeline"]


def run(*words: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        [*COMMAND, *words], input=stdin, env=ENVIRONMENT, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def heard(text: bytes) -> str:
    """The words alone."""
    letters = "".join(letter if letter.isalpha() else " " for letter in text.decode().lower())
    return " ".join(letters.split())


def test_recorded_speech_is_told_live(beckett_wav: Path) -> None:
    with wave.open(str(beckett_wav)) as file:
        samples = file.readframes(file.getnframes())
        header = wav_header(file.getframerate())  # of a length that is not known
    told = run("transcribe", "whisper-tiny.en", "-", stdin=header + samples)
    assert heard(told) == BECKETT
    assert len(told.splitlines()) >= 2


def test_silence_and_a_moment_have_no_words(tmp_path: Path) -> None:
    files = []
    for name, samples in {"silence": np.zeros(80_000), "moment": np.full(1600, 0.001)}.items():
        files.append(str(tmp_path / f"{name}.wav"))
        data = (samples * 32767).astype("<i2").tobytes()
        Path(files[-1]).write_bytes(wav_header(16_000, 1, len(data)) + data)
    assert run("transcribe", "whisper-tiny.en", *files) == "".join(f"{file}\t\n" for file in files).encode()
    assert run("transcribe", "whisper-tiny.en", "-", stdin=Path(files[0]).read_bytes()) == b""


def test_what_is_spoken_into_a_pipe_is_understood() -> None:
    spoken = run("speak", "piper-joe", "No matter. Try again.", "--seed", "7")
    assert spoken.startswith(wav_header(22_050))
    assert io.BytesIO(spoken).read(4) == b"RIFF"
    assert heard(run("transcribe", "whisper-tiny.en", "-", stdin=spoken)) == "no matter try again"

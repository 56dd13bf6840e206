"""``transcribe``: files together, one that is broken among them, live streams through pipes, every ending."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.cli.transcribing import _MOST_FILES
from genai_pipeline.errors import ExtraMissingError
from genai_pipeline.ops.media import wav_header
from genai_pipeline.testing import TinyPackage
from genai_pipeline.testing.media import MediaPackage
from genai_pipeline.testing.signals import tone, wav_bytes
from genai_pipeline.testing.voices import write_transcriber

Command = Callable[..., Any]
Process = Callable[..., "subprocess.Popen[bytes]"]
RATE = 16_000
LATER = (
    "quiet200Hz"  # a stretch begins in the pause before it, so that no sound is cut off: that is what is heard first
)
SILENCE = np.zeros(RATE, np.float32)


@pytest.fixture
def scribe(tmp_path: Path) -> MediaPackage:
    """Writes down level and pitch of the first tenth of a second that it gets."""

    def any_length(metadata: dict[str, Any]) -> None:
        metadata["preprocess"]["prepare"][-1]["pad"]["longer"] = "cut"

    return write_transcriber(tmp_path / "scribe", edit=any_length)


@pytest.fixture
def sounds(tmp_path: Path) -> Callable[..., list[Path]]:
    """``sounds("200Hz", "400Hz")``: a file for each, none for the same twice."""

    def write(*pitches: str) -> list[Path]:
        paths = [tmp_path / f"{pitch}.wav" for pitch in pitches]
        for path, pitch in zip(paths, pitches, strict=True):
            path.write_bytes(wav_bytes(tone(pitch)))
        return paths

    return write


def said(pitch: str, seconds: float = 2.5) -> np.ndarray[Any, Any]:
    """A tone and a pause: a stretch that a live stream is cut after."""
    whole = np.tile(tone(pitch, rate=RATE), round(seconds * 10))
    return np.concatenate([whole, SILENCE])


def pcm(*sounds: np.ndarray[Any, Any]) -> bytes:
    return (np.concatenate(sounds) * 32767).astype("<i2").tobytes()


def stereo(samples: np.ndarray[Any, Any], rate: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(2)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(np.repeat((samples * 32767).astype("<i2"), 2).tobytes())
    return file.getvalue()


def test_one_file_is_its_text_and_the_factor_goes_to_stderr(
    command: Command, scribe: MediaPackage, sounds: Any
) -> None:
    (file,) = sounds("600Hz")
    ran = command("transcribe", scribe, file)
    assert (ran.code, ran.out) == (0, "loud600Hz\n")
    assert ran.err.startswith("0.1 s of sound in ")
    assert ran.err.endswith("of its length\n")
    assert command("-q", "transcribe", scribe, file).err == ""
    found = json.loads(command("transcribe", scribe, file, "--format", "json").out)
    assert found == {"text": "loud600Hz", "segments": [], "seconds": 0.1}


def test_a_text_without_times_is_one_cue(command: Command, scribe: MediaPackage, sounds: Any) -> None:
    (file,) = sounds("600Hz")
    assert command("transcribe", scribe, file, "--format", "srt").out == (
        "1\n00:00:00,000 --> 00:00:00,100\nloud600Hz\n"
    )
    assert command("transcribe", scribe, file, "--format", "vtt").out == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.100\nloud600Hz\n"
    )


def test_several_files_come_in_order_the_same_one_twice_too(
    command: Command, scribe: MediaPackage, sounds: Any
) -> None:
    first, second = sounds("600Hz", "200Hz")
    ran = command("transcribe", scribe, first, second, first)
    assert ran.out == f"{first}\tloud600Hz\n{second}\tloud200Hz\n{first}\tloud600Hz\n"
    lines = command("transcribe", scribe, *[second] * (2 * _MOST_FILES + 1), "--format", "json").out.splitlines()
    assert [json.loads(line)["file"] for line in lines] == [str(second)] * (2 * _MOST_FILES + 1)


def test_a_broken_file_is_named_and_the_others_go_on(
    command: Command, scribe: MediaPackage, sounds: Any, tmp_path: Path
) -> None:
    good, *_ = sounds("600Hz")
    empty, cut = tmp_path / "empty.wav", tmp_path / "cut.wav"
    empty.touch()
    cut.write_bytes(good.read_bytes()[:100])
    ran = command("transcribe", scribe, empty, good, cut, good, "-q")
    assert (ran.code, ran.out) == (2, f"{good}\tloud600Hz\n" * 2)
    assert [line for line in ran.err.splitlines() if line.startswith("error")] == [
        f"error: {empty} is empty",
        f"error: {cut} is cut short: 56 of 1600 bytes of samples are there",
    ]
    alone = command("transcribe", scribe, empty)
    assert (alone.code, alone.out, alone.err) == (2, "", f"error: {empty} is empty\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere.wav"], "nowhere.wav: there is no such file"),
        (["there.wav", "."], ". is a folder"),
        (["-", "there.wav"], "stdin ('-') and files exclude each other"),
        (["there.wav", "--rate", "8000"], "--rate is for bare samples on stdin"),
        (["there.wav", "there.wav", "--format", "srt"], "--format srt takes one file"),
        (["there.wav", "--param", "x"], "--param takes NAME=VALUE, not 'x'"),
    ],
)
def test_what_cannot_be_is_refused_before_a_package_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.wav").write_bytes(wav_bytes(tone("200Hz")))
    ran = command("transcribe", "whisper-tiny.en", *words)
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", f"error: {says}")


def test_packages_and_parameters_that_do_not_fit_are_named(
    command: Command, scribe: MediaPackage, tiny: TinyPackage, sounds: Any
) -> None:
    (file,) = sounds("200Hz")
    for source in (file, "-"):
        ran = command("transcribe", tiny.path, source)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("error: the package 'tiny-script' does not transcribe\nhint: it takes text and")
    ran = command("transcribe", scribe, file, "--param", "language=en")
    assert ran.err == "error: 'tiny-transcriber' has no parameter 'language'\nhint: it has none\n"


def test_a_stream_is_told_stretch_by_stretch(command: Command, scribe: MediaPackage) -> None:
    stream = pcm(said("200Hz"), SILENCE, SILENCE, SILENCE, said("400Hz"))
    ran = command("transcribe", scribe, "-", "--rate", RATE, stdin=stream)
    assert (ran.code, ran.out) == (0, f"loud200Hz\n{LATER}\n")
    assert ran.err.startswith("10.0 s of sound in ")
    lines = command("transcribe", scribe, "-", "--rate", RATE, "--format", "json", stdin=stream).out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["start"], first["text"], second["text"]) == (0.0, "loud200Hz", LATER)
    assert 2.5 < first["end"] < 3.5
    assert 6.2 < second["start"] <= 6.5
    srt = command("transcribe", scribe, "-", "--rate", RATE, "--format", "srt", stdin=stream).out
    assert srt.startswith("1\n00:00:00,000 --> 00:00:0")
    assert "\n\n2\n" in srt


@pytest.mark.parametrize(
    ("options", "stream"),
    [
        ([], wav_header(RATE) + pcm(said("800Hz"))),  # its length is not known, as a pipe has it
        ([], wav_header(RATE, 1, len(pcm(said("800Hz")))) + pcm(said("800Hz"))),
        ([], stereo(said("800Hz"), RATE)),
        (["--rate", "8000"], pcm(np.tile(tone("800Hz"), 20))),
    ],
)
def test_streams_have_many_forms(command: Command, scribe: MediaPackage, options: list[str], stream: bytes) -> None:
    assert command("transcribe", scribe, "-", *options, stdin=stream).out == "loud800Hz\n"


def test_silence_and_nothing_are_no_words(command: Command, scribe: MediaPackage) -> None:
    for stream in (b"", pcm(SILENCE, SILENCE, SILENCE)):
        ran = command("transcribe", scribe, "-", "--rate", RATE, stdin=stream)
        assert (ran.code, ran.out) == (0, "")
    ran = command("transcribe", scribe, "-", stdin=b"")
    assert (ran.code, ran.out, ran.err) == (2, "", "error: stdin ends within its WAV header\n")
    ran = command("transcribe", scribe, "-", stdin=None)
    assert (ran.code, ran.err) == (2, "error: there is no sound: stdin is closed\n")


def test_a_stream_that_breaks_off_is_told_as_far_as_it_came(command: Command, scribe: MediaPackage) -> None:
    whole = pcm(said("200Hz"))
    ran = command("transcribe", scribe, "-", stdin=wav_header(RATE, 1, 2 * len(whole)) + whole)
    assert (ran.code, ran.out) == (2, "loud200Hz\n")
    assert ran.err.startswith(f"error: stdin is cut short: {len(whole)} of {2 * len(whole)} bytes of samples")
    ran = command("transcribe", scribe, "-", "--rate", RATE, stdin=whole + b"\0")
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "loud200Hz\n", "error: stdin ends within a sample")


@pytest.fixture
def live(process: Process, scribe: MediaPackage) -> subprocess.Popen[bytes]:
    """A process that hears bare samples on stdin."""
    return process("transcribe", scribe, "-", "--rate", RATE, text=False, bufsize=0, stdin=subprocess.PIPE)


def test_a_slow_speaker_is_understood_while_speaking(live: Any) -> None:
    with live:
        for pitch, heard in (("1600Hz", "loud1600Hz"), ("200Hz", LATER)):
            stream = pcm(said(pitch))
            for start in range(0, len(stream), 4001):
                live.stdin.write(stream[start : start + 4001])
            assert live.stdout.readline() == f"{heard}\n".encode()  # while the stream goes on
        live.stdin.close()
        assert live.stdout.read() == b""
    assert live.returncode == 0


def test_ctrl_c_ends_a_stream_and_what_was_said_stays(live: Any) -> None:
    with live:
        live.stdin.write(pcm(said("200Hz")))
        assert live.stdout.readline() == b"loud200Hz\n"
        live.send_signal(signal.SIGINT)
        assert (live.stdout.read(), live.stderr.read()) == (b"", b"")
    assert live.returncode == 130


def test_a_reader_that_has_enough_ends_it_quietly(live: Any) -> None:
    with live:
        live.stdin.write(pcm(said("200Hz")))
        assert live.stdout.readline() == b"loud200Hz\n"
        live.stdout.close()
        live.stdin.write(pcm(said("400Hz")))
        assert live.stderr.read() == b""
    assert live.returncode == 0


def test_a_full_disk_is_a_named_error(process: Any, scribe: MediaPackage, sounds: Any) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        process("transcribe", scribe, *sounds("200Hz", "400Hz"), stdout=full) as running,
    ):
        errors = running.communicate(timeout=60)[1]
    assert running.returncode == 1
    assert errors.startswith("error: the output cannot be written: No space left on device\n")
    assert errors.count("error") == 1


def test_without_the_extra_a_file_names_it(process: Any, without: Any, scribe: MediaPackage, sounds: Any) -> None:
    with process("transcribe", scribe, *sounds("200Hz"), env=without("soundfile", "soxr")) as running:
        out, errors = running.communicate(timeout=60)
    assert (running.returncode, out) == (ExtraMissingError.exit_code, "")
    assert "genai-pipeline[audio]" in errors

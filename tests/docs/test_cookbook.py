"""The cookbook is run as a reader would: its commands and its Python, in one folder, in order."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "sh" for line in text.splitlines()]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each command wrote to stdout; the Python of the page has run between them."""
    folder = tmp_path_factory.mktemp("cookbook")
    (folder / "texts.txt").write_text("one\ntwo\nthree\n")
    binaries = folder / "bin"
    binaries.mkdir()
    for name, call in {"genai-pipeline": "-m genai_pipeline", "python": ""}.items():
        script = binaries / name
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -W error {call} "$@"\n')
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    found: dict[str, str] = {"folder": str(folder)}
    known: dict[str, Any] = {}
    before = Path.cwd()
    os.chdir(folder)
    try:
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "cookbook", "exec"), known)
                continue
            for line in text.splitlines():
                done = subprocess.run(line, shell=True, env=environment, capture_output=True, timeout=300, check=False)
                assert done.returncode == 0, f"{line}\n{done.stderr.decode()}"
                found[line] = done.stdout.decode(errors="replace")
        yield found
    finally:
        os.chdir(before)


def out(ran: dict[str, str], start: str) -> str:
    """The output of the first command that starts so."""
    return next(text for line, text in ran.items() if line.startswith(start))


def test_every_shape_has_commands(ran: dict[str, str]) -> None:
    assert {line.split()[1] for line in COMMANDS} >= {"run", "speak", "transcribe", "embed", "validate", "inspect"}
    assert set(COMMANDS) <= ran.keys()


def test_what_was_spoken_is_heard(ran: dict[str, str]) -> None:
    words = re.sub(r"[^a-z ]", "", out(ran, "genai-pipeline transcribe whisper-tiny.en speech.wav").lower()).split()
    assert words == ["ever", "tried", "ever", "failed", "no", "matter", "try", "again"]
    assert json.loads(out(ran, "genai-pipeline transcribe asr"))["text"]
    assert out(ran, "genai-pipeline transcribe whisper-tiny.en - ").startswith("WEBVTT\n\n00:00:0")
    assert out(ran, "genai-pipeline transcribe whisper-tiny.en speech.wav --format srt").startswith(
        "1\n00:00:00,000 --> "
    )
    assert json.loads(out(ran, "genai-pipeline run silero-vad"))["segments"]


def test_the_receipt_is_read(ran: dict[str, str]) -> None:
    assert out(ran, "genai-pipeline run ppocr") == "Two coffees\nOne sandwich\nTotal due: $1,250.75\n"


def test_vectors_have_a_line_each_or_a_row(ran: dict[str, str]) -> None:
    lines = [json.loads(line) for line in out(ran, "genai-pipeline embed minilm ").splitlines()]
    first, second = (np.array(line["embedding"]) for line in lines)
    assert first @ second == pytest.approx(0.75, abs=0.01)
    assert np.load(Path(ran["folder"]) / "vectors.npy").shape == (3, 384)


def test_the_quarters_are_named(ran: dict[str, str]) -> None:
    assert out(ran, "genai-pipeline run tiny-vlm") == "redgreenbluewhite\n"
    assert json.loads(out(ran, 'genai-pipeline run tiny-vlm "and now?"'))["text"] == "redgreenbluewhite" * 2


def test_the_answer_is_one_of_the_choices(ran: dict[str, str]) -> None:
    assert out(ran, 'genai-pipeline run smollm2-135m "Is water wet?"') in ("yes\n", "no\n")

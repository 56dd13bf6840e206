"""asr: a detector and a recogniser of other packages as one pipeline, over recordings with silence and noise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

import genai_pipeline as gp

BECKETT = ["ever", "tried", "ever", "failed", "no", "matter", "try", "again", "fail", "again", "fail", "better"]
RATE = 16000


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.fixture(scope="module")
def pipe() -> Iterator[gp.Pipeline]:
    with gp.load("asr") as loaded:
        yield loaded


def test_its_graphs_are_those_of_the_other_packages(pipe: gp.Pipeline) -> None:
    borrowed = {name: component.spec.package for name, component in pipe.plan.components.items()}
    assert borrowed == {"detector": "silero-vad", "encoder": "whisper-tiny.en", "decoder": "whisper-tiny.en"}
    assert list(Path(pipe.plan.package.root).glob("*.onnx")) == []


def test_the_words_of_a_recording(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    outputs = pipe.run({"audio": beckett_wav})
    assert words(outputs["text"]) == BECKETT
    first = outputs["text.segments"][0]
    assert 0 < first["start"] < 0.5, "the voice begins at 0.35 s"


def test_silence_and_noise_around_speech_add_no_words_and_shift_times(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    speech, rate = soundfile.read(beckett_wav, dtype="float32")
    noise = np.random.default_rng(1).normal(0, 0.003, RATE * 25).astype(np.float32)
    silence = np.zeros(RATE * 15, np.float32)
    outputs = pipe.run({"audio": (np.concatenate([silence, noise, speech, noise, speech]), rate)})
    assert words(outputs["text"]) == BECKETT * 2
    starts = [segment["start"] for segment in outputs["text.segments"]]
    assert starts[0] == pytest.approx(40, abs=1)
    assert any(start == pytest.approx(75, abs=1) for start in starts)


@pytest.mark.parametrize("level", [0.0, 0.01, 0.2])
def test_nothing_is_heard_where_nobody_speaks(pipe: gp.Pipeline, level: float) -> None:
    noise = np.random.default_rng(2).normal(0, 1, RATE * 4).astype(np.float32) * np.float32(level)
    outputs = pipe.run({"audio": (noise, RATE)})
    assert (outputs["text"], outputs["text.segments"]) == ("", [])

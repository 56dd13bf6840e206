"""Whisper's program as documented equals WhisperFeatureExtractor, window by window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from transformers import WhisperFeatureExtractor

from genai_pipeline.preprocess.audio.resampling import resample
from genai_pipeline.preprocess.programs import Program

RATE = 16000
TOLERANCE = 1e-4
_random = np.random.default_rng(3)


def _sine(seconds: float, hertz: float, level: float = 0.5) -> np.ndarray:
    return (level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def _noise(seconds: float, level: float = 0.1) -> np.ndarray:
    return _random.normal(0, level, round(seconds * RATE)).astype(np.float32)


def _chirp(seconds: float) -> np.ndarray:
    time = np.arange(round(seconds * RATE)) / RATE
    return (0.5 * np.sin(2 * np.pi * (50 * time + 3900 / seconds * time**2))).astype(np.float32)


def _clicks(seconds: float) -> np.ndarray:
    made = np.zeros(round(seconds * RATE), np.float32)
    made[:: RATE // 7] = 1
    return made


SIGNALS: dict[str, np.ndarray] = {
    "silence 3 s": np.zeros(3 * RATE, np.float32),
    "silence 30 s": np.zeros(30 * RATE, np.float32),
    "one sample": np.full(1, 0.5, np.float32),
    "one hop": _noise(0.01),
    "noise 1 s": _noise(1),
    "noise 29.9999 s": _noise(29.9999),
    "noise 30 s": _noise(30),
    "noise 30 s and a sample": np.append(_noise(30), np.float32(0.1)),
    "noise 71.3 s": _noise(71.3),
    "loud noise": np.clip(_noise(4, 2.0), -1, 1),
    "faint noise": _noise(4, 1e-6),
    "sine 50 Hz": _sine(5, 50),
    "sine 440 Hz": _sine(5, 440),
    "sine 4 kHz": _sine(12.345, 4000),
    "sine 7.9 kHz, faint": _sine(2, 7900, 1e-3),
    "beyond full scale": _sine(2, 300, 3.0),
    "constant": np.full(2 * RATE, 0.25, np.float32),
    "chirp": _chirp(20),
    "clicks": _clicks(6.5),
    "square": np.sign(_sine(3, 220)),
    "sound, then silence": np.concatenate([_noise(2), np.zeros(2 * RATE, np.float32)]),
    "rising": np.linspace(0, 1, 3 * RATE, dtype=np.float32) * _sine(3, 1000),
}


@pytest.fixture(scope="module")
def whisper(documented: dict[str, Any], make_program: Callable[[Any], Program]) -> Program:
    return make_program(documented["log_mel"])


@pytest.fixture(scope="module")
def extractor() -> WhisperFeatureExtractor:
    return WhisperFeatureExtractor()


def _check(item: dict[str, Any], samples: np.ndarray, extractor: WhisperFeatureExtractor) -> None:
    """Every window's features are the extractor's of its stretch of the samples, and so is its length in frames."""
    windows = item["windows"]
    bounds = [(round(window["start"] * RATE), round(window["end"] * RATE)) for window in windows]
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == len(samples)
    for window, (start, stop) in zip(windows, bounds, strict=True):
        stretch = samples[start:stop]
        np.testing.assert_array_equal(window["samples"], np.pad(stretch, (0, 30 * RATE - len(stretch))))
        expected = extractor(stretch, sampling_rate=RATE, return_attention_mask=True)
        assert window["features"].dtype == np.float32
        np.testing.assert_allclose(window["features"], expected["input_features"][0], atol=TOLERANCE, rtol=0)
        assert window["valid_frames"] == expected["attention_mask"][0].sum()


@pytest.mark.parametrize("name", SIGNALS)
def test_signals(name: str, whisper: Program, extractor: WhisperFeatureExtractor) -> None:
    samples = SIGNALS[name]
    _check(whisper.run((samples, RATE), {}), samples, extractor)


SPEECH = [
    *((rate, "WAV", "PCM_16") for rate in (8000, 11025, 16000, 22050, 44100, 48000, 96000)),
    (16000, "FLAC", "PCM_16"),
    (48000, "OGG", "OPUS"),
    (44100, "OGG", "VORBIS"),
    (44100, "MP3", ""),
]


@pytest.mark.parametrize(("rate", "kind", "subtype"), SPEECH)
def test_speech_at_any_rate_and_in_any_format(
    rate: int,
    kind: str,
    subtype: str,
    beckett_wav: Path,
    tmp_path: Path,
    whisper: Program,
    extractor: WhisperFeatureExtractor,
) -> None:
    speech, own_rate = soundfile.read(beckett_wav, dtype="float32")
    path = tmp_path / "speech"
    soundfile.write(path, resample(speech, own_rate, rate), rate, format=kind, subtype=subtype or None)
    decoded, _ = soundfile.read(path, dtype="float32")
    _check(whisper.run(path, {}), resample(decoded, rate, RATE), extractor)


def test_long_speech(two_cities_wav: Path, whisper: Program, extractor: WhisperFeatureExtractor) -> None:
    samples, rate = soundfile.read(two_cities_wav, dtype="float32")
    item = whisper.run(two_cities_wav, {})
    assert item["seconds"] == pytest.approx(44.374, abs=1e-3)
    assert len(item["windows"]) == 2
    _check(item, resample(samples, rate, RATE), extractor)

"""Mel filters, spectra and log mel features against librosa and against formulas written out here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio.mel_filters import mel_filters, to_hertz, to_mels

Run = Callable[..., dict[str, Any]]
_slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_slow
@given(
    rate=st.sampled_from([8000, 16000, 22050, 44100]),
    n_fft=st.integers(16, 2048),
    mels=st.integers(1, 128),
    fmin=st.floats(0, 1000),
    share=st.floats(0.5, 1),
    scale=st.sampled_from(["slaney", "htk"]),
    norm=st.sampled_from(["slaney", "none"]),
)
def test_filters_are_librosas(
    rate: int, n_fft: int, mels: int, fmin: float, share: float, scale: str, norm: str
) -> None:
    import librosa

    fmax = rate / 2 * share
    made = mel_filters(rate, n_fft, mels, fmin, fmax, scale, norm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bands that are narrower than a bin
        expected = librosa.filters.mel(
            sr=rate,
            n_fft=n_fft,
            n_mels=mels,
            fmin=fmin,
            fmax=fmax,
            htk=scale == "htk",
            norm=None if norm == "none" else norm,
            dtype=np.float64,
        )
    np.testing.assert_allclose(made, expected, atol=1e-9, rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "hertz", "mels"),
    [
        ("slaney", 0, 0),
        ("slaney", 200, 3),
        ("slaney", 1000, 15),
        ("slaney", 6400, 42),
        ("htk", 700, 2595 * math.log10(2)),
    ],
)
def test_known_mels(scale: str, hertz: float, mels: float) -> None:
    assert float(to_mels(np.array(float(hertz)), scale)) == pytest.approx(mels)
    assert float(to_hertz(np.array(float(mels)), scale)) == pytest.approx(hertz)


def _reference(samples: np.ndarray, rate: int, p: dict[str, Any]) -> np.ndarray:
    """The features by the definitions: one frame, one frequency and one band at a time, as sums."""
    n_fft, hop, length = p["n_fft"], p["hop"], p["window_length"]
    signal = samples.astype(np.float64)
    signal = np.array([signal[0], *(signal[i] - p["preemphasis"] * signal[i - 1] for i in range(1, len(signal)))])
    if p["center"]:
        mode = {"zeros": "constant"}.get(p["pad_mode"], p["pad_mode"])
        signal = np.pad(signal, n_fft // 2, mode=mode)
    raised = {"hann": 0.5, "hamming": 0.54, "none": 1.0}[p["taper"]]
    weights = np.zeros(n_fft)
    for i in range(length):
        weights[(n_fft - length) // 2 + i] = raised - (1 - raised) * math.cos(2 * math.pi * i / length)
    turns = np.outer(np.arange(1 + n_fft // 2), np.arange(n_fft)) / n_fft
    filters = mel_filters(rate, n_fft, p["mels"], p["fmin"], p["fmax"], p["mel_scale"], p["norm"])
    frames = []
    for start in range(0, len(signal) - n_fft + 1, hop):
        frame = signal[start : start + n_fft] * weights
        magnitudes = np.hypot(np.cos(2 * np.pi * turns) @ frame, np.sin(2 * np.pi * turns) @ frame)
        frames.append([(magnitudes ** p["power"] * band).sum() for band in filters])
    bands = np.maximum(np.array(frames).T, p["floor"])
    logarithms = {"log10": np.log10, "ln": np.log, "none": lambda x: x, "db": lambda x: 20 / p["power"] * np.log10(x)}
    found = logarithms[p["log"]](bands[:, : -1 if p["drop_last"] else None])
    if p["range"] is not None:
        found = np.maximum(found, found.max() - p["range"])
    found = (found + p["shift"]) / p["scale"]
    return found if p["layout"] == "mels_frames" else found.T


@st.composite
def _settings(draw: st.DrawFn) -> dict[str, Any]:
    n_fft = draw(st.integers(8, 96))
    return {
        "n_fft": n_fft,
        "hop": draw(st.integers(1, 64)),
        "mels": draw(st.integers(1, 12)),
        "window_length": draw(st.integers(4, n_fft)),
        "taper": draw(st.sampled_from(["hann", "hamming", "none"])),
        "center": draw(st.booleans()),
        "pad_mode": draw(st.sampled_from(["reflect", "zeros", "edge"])),
        "drop_last": draw(st.booleans()),
        "preemphasis": draw(st.sampled_from([0.0, 0.5, 0.97])),
        "power": draw(st.sampled_from([1.0, 2.0, 1.5])),
        "fmin": draw(st.sampled_from([0.0, 60.0])),
        "fmax": draw(st.sampled_from([3000.0, 4000.0])),
        "mel_scale": draw(st.sampled_from(["slaney", "htk"])),
        "norm": draw(st.sampled_from(["slaney", "none"])),
        "log": draw(st.sampled_from(["log10", "ln", "db", "none"])),
        "floor": draw(st.sampled_from([1e-10, 1e-5])),
        "range": draw(st.sampled_from([None, 0.5, 8.0])),
        "shift": draw(st.sampled_from([0.0, 4.0, -1.5])),
        "scale": draw(st.sampled_from([1.0, 4.0, -2.0])),
        "layout": draw(st.sampled_from(["mels_frames", "frames_mels"])),
    }


@_slow
@given(parameters=_settings(), length=st.integers(200, 700), seed=st.integers(0, 99))
def test_every_parameter(run_steps: Run, parameters: dict[str, Any], length: int, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(0, 0.2, length).astype(np.float32)
    written = {name: value for name, value in parameters.items() if value is not None}
    item = run_steps(str({"log_mel": written}).replace("True", "true").replace("False", "false"), samples, 8000)
    expected = _reference(samples, 8000, parameters)
    assert item["features"].dtype == np.float32
    np.testing.assert_allclose(item["features"], expected, atol=2e-4, rtol=1e-4)
    assert item["valid_frames"] == expected.shape[1 if parameters["layout"] == "mels_frames" else 0]


def test_long_sounds_are_worked_on_in_blocks(run_steps: Run) -> None:
    samples = np.random.default_rng(1).normal(0, 0.1, 50_000).astype(np.float32)
    steps = "{log_mel: {n_fft: 64, hop: 10, mels: 4, center: false, drop_last: false}}"
    whole = run_steps(steps, samples)["features"]
    assert whole.shape == (4, 1 + (50_000 - 64) // 10)
    part = run_steps(steps, samples[40_000:40_640])["features"]
    np.testing.assert_allclose(whole[:, 4000 : 4000 + part.shape[1]], part, atol=1e-5)


@pytest.mark.parametrize(
    ("center", "valid", "frames"),
    [("true", 1000, 7), ("true", 961, 7), ("true", 960, 6), ("false", 1000, 4), ("false", 200, 0)],
)
def test_valid_frames_of_padded_sounds(run_steps: Run, center: str, valid: int, frames: int) -> None:
    steps = f"{{pad: {{samples: 3200}}}}, {{log_mel: {{n_fft: 400, hop: 160, mels: 8, center: {center}}}}}"
    item = run_steps(steps, np.ones(valid, np.float32))
    assert item["valid_frames"] == frames
    assert item["features"].shape[1] == (20 if center == "true" else 17)


def test_too_short_for_a_frame(run_steps: Run) -> None:
    with pytest.raises(MediaError, match="audio has 399 samples in one piece, too few for a frame of 400"):
        run_steps("{log_mel: {n_fft: 400, hop: 160, mels: 8, center: false}}", np.ones(399, np.float32))


def test_bands_beyond_half_the_rate(run_steps: Run) -> None:
    with pytest.raises(MediaError, match="no bands from 0 to 8000 Hz"):
        run_steps("{log_mel: {n_fft: 400, hop: 160, mels: 8, fmax: 8000}}", np.ones(999, np.float32), 8000)

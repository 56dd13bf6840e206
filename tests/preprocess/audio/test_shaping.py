"""mono, resample, window, pad, normalize and tokens against formulas written out here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import librosa
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio.windows import loudness

Run = Callable[..., dict[str, Any]]
_many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.2, shape).astype(np.float32)


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_mono_is_the_mean(run_steps: Run, channels: int) -> None:
    samples = _random(channels, 500)
    item = run_steps("{mono: {}}", samples, before="{decode: {}}")
    np.testing.assert_allclose(item["samples"], sum(samples) / channels, atol=1e-6)
    assert item["samples"].dtype == np.float32


@_many
@given(
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]),
    to=st.sampled_from([8000, 16000, 22050, 24000, 48000]),
    length=st.integers(1, 5000),
    quality=st.sampled_from(["vhq", "hq", "mq", "lq", "qq"]),
)
def test_resampling_is_librosas(run_steps: Run, rate: int, to: int, length: int, quality: str) -> None:
    samples = _random(length)
    item = run_steps(f"{{resample: {{rate: {to}, quality: {quality}}}}}", samples, rate)
    expected = librosa.resample(samples, orig_sr=rate, target_sr=to, res_type=f"soxr_{quality}")
    assert len(item["samples"]) == math.ceil(length * to / rate)
    np.testing.assert_allclose(item["samples"], expected, atol=1e-6)
    assert item["seconds"] == len(expected) / to


def test_resampling_keeps_channels_apart(run_steps: Run) -> None:
    samples = _random(3, 4000)
    item = run_steps("{resample: {rate: 16000}}", samples, 44100, before="{decode: {}}")
    for channel, made in zip(samples, item["samples"], strict=True):
        np.testing.assert_allclose(made, librosa.resample(channel, orig_sr=44100, target_sr=16000), atol=1e-6)


@_many
@given(length=st.integers(1, 900), seconds=st.sampled_from([0.1, 0.25]), overlap=st.sampled_from([0, 0.02, 0.05]))
def test_windows_of_one_length(run_steps: Run, length: int, seconds: float, overlap: float) -> None:
    samples = _random(length)
    windows = run_steps(f"{{window: {{seconds: {seconds}, overlap: {overlap}}}}}", samples, 1000)["windows"]
    size, hop = round(seconds * 1000), round((seconds - overlap) * 1000)
    starts = [0]
    while starts[-1] + size < length:
        starts.append(starts[-1] + hop)
    assert [window["start"] for window in windows] == [start / 1000 for start in starts]
    for window, start in zip(windows, starts, strict=True):
        np.testing.assert_array_equal(window["samples"], samples[start : start + size])
        assert window["seconds"] == len(window["samples"]) / 1000
        assert window["end"] == (start + len(window["samples"])) / 1000


@_many
@given(length=st.integers(1, 12_000), seed=st.integers(0, 20), search=st.sampled_from(["", ", search: 0.3"]))
def test_windows_split_at_silence_cover_everything(run_steps: Run, length: int, seed: int, search: str) -> None:
    samples = _random(length, seed=seed)
    windows = run_steps(f"{{window: {{seconds: 2, split: silence{search}}}}}", samples, 1000)["windows"]
    np.testing.assert_array_equal(np.concatenate([window["samples"] for window in windows]), samples)
    for window in windows[:-1]:
        assert (1.7 if search else 1.0) <= window["seconds"] <= 2.0


def test_words_stay_whole(run_steps: Run) -> None:
    """Words of 0.7 s with pauses of 0.3 s: every cut lies in a pause, its last one within reach."""
    word, pause = _random(700), 1e-4 * _random(300, seed=1)
    samples = np.concatenate([word, pause] * 20)
    windows = run_steps("{window: {seconds: 6.5, split: silence, search: 2}}", samples, 1000)["windows"]
    for window in windows[:-1]:
        assert 0.7 < window["end"] % 1 < 1.0
    assert len(windows) == 4


def test_the_longest_of_equally_quiet_places(run_steps: Run) -> None:
    samples = _random(3000)
    samples[1100:1350] = 0
    samples[1400:1800] = 0  # the longest
    samples[1850:2000] = 0
    first, _ = run_steps("{window: {seconds: 2, split: silence}}", samples, 1000)["windows"]
    assert first["end"] == pytest.approx(1.6, abs=0.01)


def test_near_silent_windows_are_left_out_when_declared(run_steps: Run) -> None:
    speech, faint = _random(2000), 1e-4 * _random(2000, seed=1)
    for parts, kept in (
        ([speech, faint, speech], [0, 4]),
        ([speech, faint], [0]),
        ([faint, faint], []),
    ):
        samples = np.concatenate(parts)
        steps = "{window: {seconds: 2, skip_silence: true}}, {log_mel: {n_fft: 64, hop: 32, mels: 4}}"
        item = run_steps(steps, samples, 1000)
        assert [window["start"] for window in item["windows"]] == kept
        assert item["seconds"] == len(samples) / 1000
        assert len(run_steps("{window: {seconds: 2}}", samples, 1000)["windows"]) == len(parts)
    louder = run_steps("{window: {seconds: 2, skip_silence: true, silence_level: -100}}", faint, 1000)["windows"]
    assert len(louder) == 1


def test_loudness() -> None:
    assert loudness(np.zeros(10, np.float32), 1000) == -np.inf
    assert loudness(np.full(3, 0.1, np.float32), 1000) == pytest.approx(-20)
    burst = np.zeros(1000, np.float32)
    burst[500:550] = -0.01
    assert loudness(burst, 1000) == pytest.approx(-40, abs=1e-3)


@pytest.mark.parametrize(
    ("steps", "length"),
    [
        ("{pad: {samples: 700}}", 700),
        ("{pad: {seconds: 0.8}}", 800),
        ("{pad: {multiple: 256}}", 512),
        ("{pad: {multiple: 5}}", 500),
    ],
)
def test_padding(run_steps: Run, steps: str, length: int) -> None:
    samples = _random(500)
    item = run_steps(steps, samples, 1000)
    np.testing.assert_array_equal(item["samples"], np.append(samples, np.zeros(length - 500, np.float32)))
    assert item["seconds"] == 0.5
    assert item["windows"][0]["end"] == 0.5
    both = run_steps(steps, np.stack([samples, -samples]), 1000, before="{decode: {}}")["samples"]
    np.testing.assert_array_equal(both, np.stack([item["samples"], -item["samples"]]))


def test_padding_with_a_value(run_steps: Run) -> None:
    item = run_steps("{pad: {samples: 4, value: -0.5}}", np.ones(2, np.float32))
    assert item["samples"].tolist() == [1, 1, -0.5, -0.5]


def test_longer_than_padded(run_steps: Run) -> None:
    samples = _random(500)
    with pytest.raises(MediaError, match=r"audio has 0\.500 s in one piece, and at most 0\.4 s fit"):
        run_steps("{pad: {seconds: 0.4}}", samples, 1000)
    item = run_steps("{pad: {seconds: 0.4, longer: cut}}", samples, 1000)
    np.testing.assert_array_equal(item["samples"], samples[:400])
    assert item["seconds"] == 0.4


@_many
@given(length=st.integers(1, 400), padded=st.integers(0, 50), channels=st.integers(1, 3), seed=st.integers(0, 9))
def test_unit_variance(run_steps: Run, length: int, padded: int, channels: int, seed: int) -> None:
    samples = _random(channels, length, seed=seed) + np.float32(0.3)
    steps = f"{{pad: {{samples: {length + padded}}}}}, {{normalize: {{to: unit}}}}"
    made = run_steps(steps, samples, before="{decode: {}}")["samples"]
    for channel, row in zip(samples.astype(np.float64), made, strict=True):
        mean = sum(channel) / length
        variance = sum((x - mean) ** 2 for x in channel) / length
        np.testing.assert_allclose(row[:length], (channel - mean) / math.sqrt(variance + 1e-7), atol=1e-4, rtol=1e-4)
        assert not row[length:].any()


@pytest.mark.parametrize(
    ("steps", "peak"), [("{normalize: {to: peak}}", 1.0), ("{normalize: {to: peak, level: 0.5}}", 0.5)]
)
def test_peak(run_steps: Run, steps: str, peak: float) -> None:
    samples = _random(300)
    samples[17] = -3
    made = run_steps(steps, samples)["samples"]
    np.testing.assert_allclose(made, samples * peak / 3, atol=1e-6)
    assert made[17] == -peak
    assert not run_steps(steps, np.zeros(5, np.float32))["samples"].any()


def test_each_window_is_normalized_by_itself(run_steps: Run) -> None:
    samples = np.concatenate([_random(100), 4 * _random(100)])
    steps = "{window: {seconds: 0.1}}, {pad: {samples: 120}}, {normalize: {to: peak}}"
    item = run_steps(steps, samples, 1000)
    assert [float(np.abs(window["samples"]).max()) for window in item["windows"]] == [1, 1]
    assert [len(window["samples"]) for window in item["windows"]] == [120, 120]
    np.testing.assert_array_equal(item["samples"], samples)


def _left(count: int, layers: list[tuple[int, int, int]]) -> int:
    for kernel, stride, padding in layers:
        places = range(-padding, count + padding - kernel + 1, stride)
        count = len(places)
    return count


@_many
@given(
    length=st.integers(1, 3000),
    layers=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 4)), min_size=1, max_size=4),
)
def test_tokens_are_what_convolutions_leave(run_steps: Run, length: int, layers: list[tuple[int, int, int]]) -> None:
    kernels, strides, paddings = (list(column) for column in zip(*layers, strict=True))
    step = f"{{tokens: {{kernels: {kernels}, strides: {strides}, paddings: {paddings}}}}}"
    samples = np.ones(length, np.float32)
    assert run_steps(f"{{pad: {{samples: 4000}}}}, {step}", samples)["tokens"] == _left(length, layers)
    mel = "{log_mel: {n_fft: 40, hop: 20, mels: 2}}"
    item = run_steps(f"{{pad: {{samples: 4000}}}}, {mel}, {step}", samples)
    assert item["tokens"] == _left(item["valid_frames"], layers) == _left(math.ceil(length / 20), layers)


def test_tokens_of_windows_add_up(run_steps: Run) -> None:
    step = "{tokens: {kernels: [10], strides: [10], paddings: [0]}}"
    item = run_steps(f"{{window: {{seconds: 0.1}}}}, {step}", np.ones(275, np.float32), 1000)
    assert [window["tokens"] for window in item["windows"]] == [10, 10, 7]
    assert item["tokens"] == 27

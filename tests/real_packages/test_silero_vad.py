"""silero-vad: finds speech where it is and nowhere else, step by step over a sound, side by side with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

import genai_pipeline as gp
from genai_pipeline.checking import check_package
from genai_pipeline.config import LoadOptions
from genai_pipeline.importers.pull import pull
from genai_pipeline.pipeline import Pipeline

RATE = 16000
# Seconds at which the voice of beckett.wav begins and ends, read off its waveform.
PHRASES = [(0.35, 1.2), (1.9, 2.8), (3.5, 4.2), (4.9, 5.6), (6.65, 7.4), (8.15, 8.9)]
Samples = NDArray[np.float32]


@pytest.fixture(scope="module")
def folder() -> Path:
    return pull("silero-vad")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[gp.Pipeline]:
    with gp.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def reference(folder: Path, run_graph: Any) -> Callable[[Samples], Samples]:
    """The graph called for 512 samples at a time, with the 64 before them and its own state."""
    model = folder / "model.onnx"

    def probabilities(samples: Samples) -> Samples:
        padded = np.pad(samples, (64, -len(samples) % 512))
        state, found = np.zeros((1, 2, 128), np.float32), []
        for start in range(0, len(padded) - 64, 512):
            frame = padded[np.newaxis, start : start + 576]
            chance, state = run_graph(model, input=frame, state=state, sr=np.array(RATE))
            found.append(chance[0, 0])
        return np.array(found, np.float32)

    return probabilities


def noise(seconds: float, level: float, seed: int = 0) -> tuple[Samples, int]:
    samples = np.random.default_rng(seed).standard_normal(round(seconds * RATE), np.float32)
    return samples * np.float32(level), RATE


def test_speech_is_found_where_it_is(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    segments = pipe.run({"audio": beckett_wav})["segments"]
    assert len(segments) == len(PHRASES)
    for segment, (start, end) in zip(segments, PHRASES, strict=True):
        assert segment["start"] == pytest.approx(start, abs=0.1)
        assert segment["end"] == pytest.approx(end, abs=0.1)


@pytest.mark.parametrize("level", [0.0, 0.01, 0.1, 0.5])
def test_there_is_none_in_noise(pipe: gp.Pipeline, level: float) -> None:
    outputs = pipe.run({"audio": noise(5, level)})
    assert outputs["segments"] == []
    assert outputs["probabilities"].max() < 0.5


def test_probabilities_are_those_of_the_graph_alone(
    pipe: gp.Pipeline, reference: Callable[[Samples], Samples], beckett_wav: Path
) -> None:
    samples, rate = soundfile.read(beckett_wav, dtype="float32")
    assert rate == RATE
    for count in (len(samples), 512 * 4, 512 * 4 + 1, 700, 512, 100, 1):
        found = pipe.run({"audio": (samples[:count], rate)})["probabilities"]
        np.testing.assert_allclose(found, reference(samples[:count])[np.newaxis], atol=1e-6)


def test_the_threshold_is_the_requests(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    def spoken(threshold: float) -> float:
        segments = pipe.run({"audio": beckett_wav, "threshold": threshold})["segments"]
        return float(sum(segment["end"] - segment["start"] for segment in segments))

    assert 0 < spoken(0.95) < spoken(0.5) < spoken(0.05)


def test_eight_sounds_share_runs_and_have_the_answers_they_have_alone(
    pipe: gp.Pipeline, beckett_wav: Path, together: Any, shared_runs: Any
) -> None:
    samples, rate = soundfile.read(beckett_wav, dtype="float32")
    requests = [{"audio": (samples[i * 7000 : i * 7000 + 40000 + i * 1000], rate)} for i in range(8)]
    alone = [pipe.run(request) for request in requests]
    before = shared_runs(pipe)
    for ours, expected in zip(together(pipe, requests), alone, strict=True):
        np.testing.assert_array_equal(ours["probabilities"], expected["probabilities"])
        assert ours["segments"] == expected["segments"]
    assert shared_runs(pipe) - before > 40  # of 79 to 92 steps


def test_another_package_can_borrow_its_graph(
    folder: Path, tmp_path: Path, pipe: gp.Pipeline, beckett_wav: Path
) -> None:
    text = (folder / "inference_metadata.yaml").read_text(encoding="utf-8")
    own = "detector: {model: model.onnx}"
    assert own in text
    borrowed = text.replace(own, "detector: {package: silero-vad, component: detector}")
    (tmp_path / "inference_metadata.yaml").write_text(
        borrowed.replace("name: silero-vad", "name: borrower"), encoding="utf-8"
    )
    checked = check_package(tmp_path, pull)
    assert checked.plan is not None, checked.problems
    with Pipeline(checked.plan, checked.tokenizers, LoadOptions()) as borrower:
        ours, expected = borrower.run({"audio": beckett_wav}), pipe.run({"audio": beckett_wav})
    np.testing.assert_array_equal(ours["probabilities"], expected["probabilities"])

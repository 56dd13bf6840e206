"""whisper-tiny.en on recorded speech: words, times, late joiners, long sounds, and the graphs run without an engine."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import tokenizers

import genai_pipeline as gp
from genai_pipeline.importers.pull import pull

BECKETT = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
# A Tale of Two Cities, the words of the recording.
TWO_CITIES = """It was the best of times, it was the worst of times. It was the age of wisdom, it was the age of
foolishness. It was the epoch of belief, it was the epoch of incredulity. It was the season of light, it was the season
of darkness. It was the spring of hope, it was the winter of despair. We had everything before us, we had nothing before
us. We were all going direct to heaven, we were all going direct the other way. In short, the period was so far like the
present period that some of its noisiest authorities insisted on its being received for good or for evil in the
superlative degree of comparison only."""
START, NO_TIMES, END = 50257, 50362, 50256
LAYERS, PARTS = range(4), ("key", "value")


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


@pytest.fixture(scope="module")
def folder() -> Path:
    return pull("whisper-tiny.en")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[gp.Pipeline]:
    with gp.load(folder) as loaded:
        yield loaded


def test_the_graphs_alone_give_the_words(folder: Path, run_graph: Any, beckett_wav: Path) -> None:
    """A greedy loop in numpy over features that transformers computes."""
    from transformers import WhisperFeatureExtractor

    samples, rate = soundfile.read(beckett_wav, dtype="float32")
    features = WhisperFeatureExtractor()(samples, sampling_rate=rate, return_tensors="np")["input_features"]
    _, *cross = run_graph(folder / "encoder.onnx", input_features=features)
    names = [f"past_key_values.{layer}.encoder.{part}" for layer in LAYERS for part in PARTS]
    states = dict(zip(names, cross, strict=True))
    names = [f"past_key_values.{layer}.decoder.{part}" for layer in LAYERS for part in PARTS]
    past = dict.fromkeys(names, np.zeros((1, 6, 0, 64), np.float32))
    tokens, new = [START, NO_TIMES], 2
    while tokens[-1] != END and len(tokens) < 60:
        places = np.arange(len(tokens) - new, len(tokens))[np.newaxis]
        mask = np.ones((1, len(tokens)), np.int64)
        ids = np.array([tokens[-new:]])
        step = {"input_ids": ids, "position_ids": places, "attention_mask": mask}
        *present, logits = run_graph(folder / "decoder.onnx", **step, **past, **states)
        past, new = dict(zip(names, present, strict=True)), 1
        tokens.append(int(logits[0, -1].argmax()))
    text = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).decode(tokens).strip()
    assert text == BECKETT


@pytest.mark.parametrize("timestamps", [True, False])
def test_the_words_of_a_recording(pipe: gp.Pipeline, beckett_wav: Path, timestamps: bool) -> None:
    assert pipe.run({"audio": beckett_wav, "timestamps": timestamps})["text"] == BECKETT


def test_sentences_have_their_times(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    segments = pipe.run({"audio": beckett_wav})["text.segments"]
    assert [segment["text"] for segment in segments] == [
        "Ever tried, ever failed.",
        "No matter, try again.",
        "Fail again.",
        "Fail better.",
    ]
    # Phrases begin at these seconds by the waveform; the model's times are those of whole sentences and round.
    for segment, start in zip(segments, (0.35, 3.5, 6.65, 8.15), strict=True):
        assert segment["start"] <= start <= segment["end"]
    assert all(a["end"] <= b["start"] for a, b in pairwise(segments))


def test_without_times_a_window_is_one_segment(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    (segment,) = pipe.run({"audio": beckett_wav, "timestamps": False})["text.segments"]
    assert (segment["start"], segment["text"]) == (0.0, BECKETT)
    assert segment["end"] == pytest.approx(9.963, abs=1e-3)


def test_a_long_recording_is_cut_where_nothing_is_lost(pipe: gp.Pipeline, two_cities_wav: Path) -> None:
    outputs = pipe.run({"audio": two_cities_wav})
    assert words(outputs["text"]) == words(TWO_CITIES)
    segments = outputs["text.segments"]
    times = [time for segment in segments for time in (segment["start"], segment["end"])]
    assert times == sorted(times)
    assert max(times) > 40, "times go on behind the first window"
    assert " ".join(segment["text"] for segment in segments) == outputs["text"]


def test_silence_has_no_words(pipe: gp.Pipeline) -> None:
    outputs = pipe.run({"audio": (np.zeros(16000 * 3, np.float32), 16000)})
    assert (outputs["text"], outputs["text.segments"]) == ("", [])


@pytest.fixture(scope="module")
def with_tokens(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[gp.Pipeline]:
    """The package with the tokens of each window as one more output; its graphs are borrowed."""
    text = (folder / "inference_metadata.yaml").read_text(encoding="utf-8")
    text = text.replace("outputs:\n", "outputs:\n  tokens: {modality: items, value: each.generate.tokens}\n", 1)
    text = text.replace("name: whisper-tiny.en", "name: with-tokens")
    text = text.replace("{model: encoder.onnx}", "{package: whisper-tiny.en, component: encoder}")
    start, end = text.index("    model: decoder.onnx"), text.index("stages:")
    text = text[:start] + "    {package: whisper-tiny.en, component: decoder}\n" + text[end:]
    made = tmp_path_factory.mktemp("with_tokens")
    (made / "inference_metadata.yaml").write_text(text, encoding="utf-8")
    shutil.copyfile(folder / "tokenizer.json", made / "tokenizer.json")
    with gp.load(made) as loaded:
        yield loaded


def test_requests_that_join_late_have_the_tokens_they_have_alone(
    with_tokens: gp.Pipeline, beckett_wav: Path, two_cities_wav: Path, endgame_wav: Path
) -> None:
    pipe = with_tokens
    requests = [
        {"audio": two_cities_wav},  # two windows, which share runs from the beginning
        {"audio": endgame_wav, "timestamps": False},
        {"audio": beckett_wav},
        {"audio": beckett_wav, "timestamps": False},
    ]
    alone = [pipe.run(request)["tokens"] for request in requests]
    before = rows_of_decode_runs(pipe)
    with ThreadPoolExecutor(len(requests)) as threads:
        running = []
        for request in requests:
            generated = pipe.stats()["tokens"]["generated"]
            running.append(threads.submit(pipe.run, request))
            while pipe.stats()["tokens"]["generated"] < generated + 5:
                assert not running[-1].done() or running[-1].exception() is None
        together = [future.result()["tokens"] for future in running]
    for ours, expected in zip(together, alone, strict=True):
        assert [list(tokens) for tokens in ours] == [list(tokens) for tokens in expected]
    shared = rows_of_decode_runs(pipe) - before
    assert max(shared) >= 3, "rows of several requests shared runs"


def rows_of_decode_runs(pipe: gp.Pipeline) -> Counter[int]:
    """How many decode runs had so many rows."""
    return Counter({int(rows): count for rows, count in pipe.stats()["rows"].get("decode", {}).items()})


def test_the_same_sound_is_encoded_once(pipe: gp.Pipeline, beckett_wav: Path) -> None:
    samples, rate = soundfile.read(beckett_wav, dtype="float32")
    request = {"audio": (samples[: rate * 5], rate)}
    first = pipe.run(request)
    before = pipe.stats()["runs"]["aside"]
    assert pipe.run(request) == first
    assert pipe.stats()["runs"]["aside"] == before


def test_fast_weights_hear_the_same(beckett_wav: Path) -> None:
    with gp.load("whisper-tiny.en", precision="fast") as fast:
        assert words(fast.run({"audio": beckett_wav})["text"]) == words(BECKETT)

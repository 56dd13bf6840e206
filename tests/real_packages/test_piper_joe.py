"""piper-joe: a seed repeats the sound, pieces are the whole, and a listener hears what was to be said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import genai_pipeline as gp
from genai_pipeline.importers import cache, fetch
from genai_pipeline.importers.progress import silent
from genai_pipeline.importers.pull import pull
from genai_pipeline.importers.recipes import find_recipe

SENTENCE = "We have never seen a river that was so quiet, so wide and so full of light."
HOP, CHUNK = 256, 40  # samples of a frame, frames of a piece
QUIET = {"noise": 0.0, "rhythm_noise": 0.0}
RunGraph = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def folder() -> Path:
    return pull("piper-joe")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[gp.Pipeline]:
    with gp.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def listener() -> Iterator[gp.Pipeline]:
    with gp.load("whisper-tiny.en") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def voice() -> Path:
    """The voice as it is published, in one graph; kept in the user cache."""
    source = find_recipe("piper-joe").sources[0]
    graph = source.files[0]

    def build(target: Path) -> None:
        scratch = target.parent / "download"
        scratch.mkdir()
        files = fetch.download(source, scratch, silent)
        target.mkdir()
        shutil.move(files[graph.name], target / graph.name)

    return cache.materialise(cache.package_folder("piper-joe", "voice"), graph.sha256, build) / graph.name


@pytest.fixture(scope="module")
def ids(folder: Path) -> NDArray[np.int64]:
    """The ids of SENTENCE, put together by hand: frame and padding around those of each symbol."""
    dictionary = json.loads((folder / "dictionary.json").read_text(encoding="utf-8"))
    table = json.loads((folder / "phoneme_ids.json").read_text(encoding="utf-8"))
    symbols = []
    for word in SENTENCE.lower().split():
        symbols += [*dictionary[word.strip(",.")].split(), *re.findall("[,.]", word), " "]
    bare = [number for symbol in ["^", *symbols[:-1], "$"] for number in table[symbol]]
    padded = np.zeros(2 * len(bare) - 1, np.int64)
    padded[::2] = bare
    return padded[None]


def test_without_noise_it_is_the_published_voice(
    pipe: gp.Pipeline, folder: Path, voice: Path, ids: NDArray[np.int64], run_graph: RunGraph
) -> None:
    lengths, scales = np.array([ids.shape[1]]), np.array([0, 1, 0], np.float32)
    (whole,) = run_graph(voice, input=ids, input_lengths=lengths, scales=scales)
    (latent,) = run_graph(folder / "acoustic.onnx", phonemes=ids, lengths=lengths, scales=scales)
    (wave,) = run_graph(folder / "vocoder.onnx", latent=latent)
    np.testing.assert_array_equal(wave.reshape(-1), whole.reshape(-1))
    spoken = pipe.run({"prompt": SENTENCE, **QUIET}, seed=1)["audio"]
    assert spoken.rate == 22050
    np.testing.assert_allclose(spoken.samples, whole.reshape(-1), atol=1e-5)


def test_a_seed_repeats_the_wave(pipe: gp.Pipeline) -> None:
    first = pipe.run({"prompt": SENTENCE}, seed=5)["audio"].samples
    np.testing.assert_array_equal(pipe.run({"prompt": SENTENCE}, seed=5)["audio"].samples, first)
    assert not np.array_equal(pipe.run({"prompt": SENTENCE}, seed=6)["audio"].samples, first)


def test_speed_changes_the_length(pipe: gp.Pipeline) -> None:
    slow, usual, fast = (
        pipe.run({"prompt": SENTENCE, "speed": speed, **QUIET}, seed=1)["audio"].seconds for speed in (0.5, 1.0, 2.0)
    )
    assert 1.7 < slow / usual < 2.1
    assert 1.4 < usual / fast < 2.1


def test_sound_streams_in_pieces_that_are_the_whole(pipe: gp.Pipeline) -> None:
    whole = pipe.run({"prompt": SENTENCE}, seed=5)["audio"].samples
    pieces = [piece.samples for piece in pipe.stream_speech(SENTENCE, seed=5)]
    assert [len(piece) for piece in pieces[:-1]] == [CHUNK * HOP] * (len(pieces) - 1)
    assert len(pieces) == -(-len(whole) // (CHUNK * HOP))
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_the_first_piece_comes_before_the_others_are_made(pipe: gp.Pipeline) -> None:
    before = _runs(pipe)
    stream = iter(pipe.stream_speech(f"{SENTENCE} {SENTENCE}", seed=5))
    next(stream)
    first = _runs(pipe) - before
    assert len(list(stream)) > 12
    assert first < (_runs(pipe) - before) / 2
    assert len(list(pipe.stream_speech("Hello. World.", seed=5))) >= 2


def _runs(pipe: gp.Pipeline) -> int:
    """Runs outside of decode loops so far."""
    return sum(pipe.stats()["rows"].get("aside", {}).values())


def test_speakers_side_by_side_sound_as_alone(pipe: gp.Pipeline) -> None:
    texts = (SENTENCE, "Good morning.", "The blorp costs $5.", SENTENCE)
    alone = [pipe.speak(text, seed=9).samples for text in texts]
    with ThreadPoolExecutor(len(texts)) as threads:
        beside = list(threads.map(lambda text: pipe.speak(text, seed=9).samples, texts))
    for one, expected in zip(beside, alone, strict=True):
        np.testing.assert_array_equal(one, expected)


@pytest.mark.parametrize(
    "text",
    [
        SENTENCE,
        "The quick brown fox jumps over the lazy dog.",
        "Hello world, how are you today?",
        "Please come back tomorrow. The weather will be better.",
    ],
)
def test_what_is_spoken_is_heard(pipe: gp.Pipeline, listener: gp.Pipeline, text: str) -> None:
    sound = pipe.speak(text, seed=1)
    heard = listener.transcribe((sound.samples, sound.rate)).text
    assert _words(heard) == _words(text)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())

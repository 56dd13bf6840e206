"""Tasks of the Python API: what transcribes, speaks and embeds by its structure, and what does not says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import MediaError, OptionError, RequestError
from genai_pipeline.tasks import can, embedding, shorten, speech, transcription
from genai_pipeline.testing import TinyPackage, write_package
from genai_pipeline.testing.media import write_embedder, write_listener, write_towers, write_vlm
from genai_pipeline.testing.signals import LEVEL_WORDS, PITCH_WORDS, tone, wav_bytes
from genai_pipeline.testing.voices import RATE, spoken, write_speaker, write_transcriber

Load = Callable[..., gp.Pipeline]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Load]:
    """``opened(write_speaker)``: the package loaded, closed after the test."""
    pipes: list[gp.Pipeline] = []

    def load(write: Callable[..., Any], **options: Any) -> gp.Pipeline:
        pipes.append(gp.load(write(tmp_path / str(len(pipes)), **options)))
        return pipes[-1]

    yield load
    for pipe in pipes:
        pipe.close()


def test_what_users_need_is_public() -> None:
    assert {"Audio", "Image", "Segment", "Transcript"} <= set(gp.__all__)
    assert gp.Transcript("a", (), 2.0).timed() == (gp.Segment(0.0, 2.0, "a"),)
    assert gp.Transcript("a", (gp.Segment(0, 1, "a"),), 2.0).to_dict() == {
        "text": "a",
        "segments": [{"start": 0, "end": 1, "text": "a"}],
        "seconds": 2.0,
    }


@pytest.mark.parametrize("source", ["path", "text", "bytes", "file", "samples"])
def test_a_sound_of_any_source_is_transcribed(opened: Load, tmp_path: Path, source: str) -> None:
    pipe, file = opened(write_transcriber), tmp_path / "a.wav"
    file.write_bytes(wav_bytes(tone("400Hz", "soft")))
    with file.open("rb") as stream:
        sources = {
            "path": file,
            "text": str(file),
            "bytes": file.read_bytes(),
            "file": stream,
            "samples": (tone("400Hz", "soft"), 8000),
        }
        found = pipe.transcribe(sources[source])
    assert (found.text, found.segments, round(found.seconds, 6)) == ("soft400Hz", (), 0.1)


def test_many_sounds_at_once_from_threads_are_told_apart(opened: Load) -> None:
    pipe = opened(write_transcriber)
    expected = [f"{level}{pitch}" for level in LEVEL_WORDS for pitch in PITCH_WORDS] * 2
    sounds = [(tone(pitch, level), 8000) for level in LEVEL_WORDS for pitch in PITCH_WORDS] * 2
    with ThreadPoolExecutor(8) as threads:
        assert [found.text for found in threads.map(pipe.transcribe, sounds)] == expected
    begun = [pipe.transcription(sound) for sound in sounds]
    assert [one.transcript().text for one in begun] == expected


def test_a_transcription_that_is_left_is_cancelled(opened: Load) -> None:
    pipe = opened(write_transcriber)
    with pipe.transcription((tone("200Hz"), 8000)) as under_way:
        assert round(under_way.seconds, 6) == 0.1
    assert pipe.transcribe((tone("200Hz"), 8000)).text == "loud200Hz"


def test_what_is_no_sound_is_refused(opened: Load, tmp_path: Path) -> None:
    pipe = opened(write_transcriber)
    for wrong in (b"", b"no sound", tmp_path / "nowhere.wav", tmp_path, 5):
        with pytest.raises(MediaError) as caught:
            pipe.transcribe(wrong)
        assert caught.value.param == "audio"
    with pytest.raises(OptionError, match="unknown option 'language'"):
        pipe.transcribe((tone("200Hz"), 8000), language="en")


def test_a_text_is_spoken_whole_and_in_pieces(opened: Load) -> None:
    pipe = opened(write_speaker)
    expected = spoken(pipe.tokenize("one two"))
    whole = pipe.speak("one two")
    assert (whole.rate, whole.samples.tolist()) == (RATE, expected)
    pieces = list(pipe.stream_speech("one two"))
    assert len(pieces) > 1
    assert [sample for piece in pieces for sample in piece.samples.tolist()] == expected
    assert pipe.speak("one two", speed=0.5).samples.tolist() == [sample / 2 for sample in expected]


def test_speech_that_does_not_stream_is_one_piece(opened: Load) -> None:
    def whole(metadata: dict[str, Any]) -> None:
        loop = metadata["stages"].pop()
        metadata["stages"].append({"run": "voice", **loop["body"][0], "outputs": {"wave": "wave"}})
        metadata["stages"][1]["inputs"]["levels"] = "levels"
        metadata["outputs"]["audio"]["value"] = "wave"

    pipe = opened(write_speaker, edit=whole)
    (piece,) = pipe.stream_speech("one two")
    assert piece.samples.tolist() == spoken(pipe.tokenize("one two"))


def test_closing_speech_cancels_it(opened: Load) -> None:
    pipe = opened(write_speaker)
    pieces = pipe.stream_speech("one two three " * 1000)
    first = next(pieces)
    pieces.close()
    assert next(pieces, None) is None
    assert first.samples.tolist() == spoken(pipe.tokenize("one two three"))[: len(first.samples)]
    assert pipe.speak("one").seconds > 0


def test_runs_stream_their_sound_and_end_with_all_outputs(opened: Load) -> None:
    pipe = opened(write_speaker)

    async def followed() -> list[Any]:
        async with await pipe.aopen_run({"prompt": "one two"}) as events:
            assert events.prompt_tokens == len(pipe.tokenize("one two"))
            return [event async for event in events]

    for events in (list(pipe.stream_run({"prompt": "one two"})), asyncio.run(followed())):
        *pieces, last = events
        heard = [sample for event in pieces for sample in event.audio.samples.tolist()]
        assert heard == last.outputs["audio"].samples.tolist() == spoken(pipe.tokenize("one two"))
        assert (last.finish_reason, last.error) == ("stop", None)

    async def refused() -> None:
        await pipe.aopen_run({"text": "one"})

    with pytest.raises(RequestError, match="no input 'text'"):
        asyncio.run(refused())
    with pytest.raises(RequestError, match="no input 'text'"):
        pipe.stream_run({"text": "one"})


def test_texts_become_vectors_in_order(opened: Load) -> None:
    pipe = opened(write_embedder)
    texts = ["200Hz", "400Hz 400Hz", ""]
    found = pipe.embed(texts)
    assert (found.dtype, found.shape) == (np.float32, (3, 8))
    np.testing.assert_allclose(found, [np.eye(8)[0], np.eye(8)[1], np.zeros(8)], atol=1e-6)
    np.testing.assert_array_equal(pipe.embed("400Hz 400Hz"), found[1])
    with pytest.raises(RequestError, match="there is no text to embed"):
        pipe.embed([])


def test_a_package_of_one_text_embeds_many(opened: Load) -> None:
    def single(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["prompt"] = {"modality": "text"}
        (stage,) = metadata["stages"]
        metadata["stages"] = stage["body"]
        metadata["outputs"]["texts"]["value"] = "unit"

    pipe = opened(write_embedder, edit=single)
    texts = [f"{200 * (1 + number % 8)}Hz" for number in range(150)]
    np.testing.assert_allclose(pipe.embed(texts), np.eye(8)[np.arange(150) % 8], atol=1e-6)
    assert pipe.embed("200Hz").shape == (8,)


def test_fewer_dimensions_have_length_one(opened: Load) -> None:
    pipe = opened(write_embedder)
    np.testing.assert_allclose(pipe.embed("200Hz 400Hz 600Hz", dimensions=2), [0.5**0.5] * 2, atol=1e-6)
    assert pipe.embed(["200Hz"], dimensions=8).shape == (1, 8)
    for wrong in (0, 9, True, 2.5):
        with pytest.raises(OptionError, match="dimensions must be"):
            pipe.embed("200Hz", dimensions=wrong)
    assert shorten(np.zeros((1, 4), np.float32), 2).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("write", "tasks"),
    [
        (write_transcriber, {transcription}),
        (write_speaker, {speech}),
        (write_embedder, {embedding}),
        (write_listener, set()),  # it needs a text, too
        (write_towers, set()),  # of its two vectors one is meant
        (write_vlm, set()),
    ],
)
def test_tasks_follow_from_the_structure(tmp_path: Path, write: Any, tasks: set[Any]) -> None:
    spec, problems = gp.validate(Path(write(tmp_path / "package")))
    assert (spec is not None, problems) == (True, ())
    assert {task for task in (transcription, speech, embedding) if can(spec, task)} == tasks


def test_a_package_that_cannot_says_what_it_does(tmp_path: Path) -> None:
    package: TinyPackage = write_package(tmp_path / "tiny", "script")
    with gp.load(package.path) as pipe:
        for verb, call in (
            ("transcribe", lambda: pipe.transcribe(b"")),
            ("transcribe", lambda: pipe.transcription(b"")),
            ("speak", lambda: pipe.speak("hi")),
            ("speak", lambda: pipe.stream_speech("hi")),
            ("embed", lambda: pipe.embed("hi")),
        ):
            with pytest.raises(RequestError, match=f"the package 'tiny-script' does not {verb}") as caught:
                call()
            assert caught.value.hint == "it takes text and gives text; use run with the names of its inputs"


def test_a_list_of_sounds_is_no_transcription(tmp_path: Path) -> None:
    def several(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["audio"]["list"] = True

    spec, _ = gp.validate(write_transcriber(tmp_path / "package", edit=several).path)
    assert spec is not None
    assert not can(spec, transcription)


def test_options_of_generation_are_refused_where_no_tokens_are_made(opened: Load) -> None:
    pipe = opened(write_embedder)
    for name, value in {"temperature": 0.5, "max_new_tokens": 3, "stop": ["x"], "n": 2}.items():
        with pytest.raises(OptionError, match=f"{name} has no effect: this package makes no tokens"):
            pipe.embed("200Hz", **{name: value})
    assert pipe.embed("200Hz", seed=3, timeout=60, priority="high")[0] == 1.0

"""Live sound is cut where nobody speaks, as early as can be; silence is no speech, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import MediaError
from genai_pipeline.live_speech import Pauses, read_ahead, stretches, transcribe_live
from genai_pipeline.ops.timed_text import Segment
from genai_pipeline.tasks import Transcript

RATE = 1000
PAUSES = Pauses()
Samples = np.ndarray[Any, np.dtype[np.float32]]


def speech(seconds: float) -> Samples:
    return np.full(round(seconds * RATE), 0.5, np.float32)


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE), np.float32)


def blocks(*parts: Samples, size: int = 100) -> Iterator[Samples]:
    whole = np.concatenate(parts)
    return (whole[start : start + size] for start in range(0, len(whole), size))


def lengths(found: Iterator[tuple[int, Samples]]) -> list[float]:
    return [len(samples) / RATE for _, samples in found]


def test_a_pause_ends_a_stretch_as_soon_as_it_is_heard() -> None:
    heard = []

    def counted() -> Iterator[Samples]:
        for block in blocks(speech(3), silence(1), speech(3)):
            heard.append(len(block))
            yield block

    first, samples = next(stretches(counted(), RATE, PAUSES))
    assert (first, len(samples)) == (0, 3250)  # half of the pause belongs to it
    assert sum(heard) == 3500


def test_short_pauses_and_short_stretches_are_not_cut() -> None:
    assert lengths(stretches(blocks(speech(3), silence(0.3), speech(1)), RATE, PAUSES)) == [4.3]
    assert lengths(stretches(blocks(speech(1), silence(0.6), speech(1)), RATE, PAUSES)) == [2.6]


def test_a_long_stretch_is_cut_at_its_quietest_place() -> None:
    found = list(stretches(blocks(speech(9), silence(0.3), speech(11)), RATE, PAUSES))
    assert 9.0 < len(found[0][1]) / RATE < 9.3
    assert sum(len(samples) for _, samples in found) == 20_300
    assert [first for first, _ in found] == [0, len(found[0][1])]


def test_nothing_is_lost_whatever_the_blocks() -> None:
    parts = (speech(3), silence(1), speech(20), silence(5), speech(0.05))
    for size in (1, 99, 100, 4000, 50_000):
        found = list(stretches(blocks(*parts, size=size), RATE, PAUSES))
        assert np.array_equal(np.concatenate([samples for _, samples in found]), np.concatenate(parts)), size


def test_segments_have_times_of_the_stream_and_silence_none() -> None:
    asked = []

    def transcribe(sound: tuple[Samples, int]) -> Transcript:
        asked.append(len(sound[0]) / RATE)
        return Transcript("hello", (Segment(0.25, 1.0, "hello"), Segment(1.0, 1.5, " ")), asked[-1])

    stream = (silence(10), speech(3), silence(20), speech(3))
    found = list(transcribe_live(transcribe, blocks(*stream), RATE))
    assert found == [Segment(10.0, 10.75, "hello"), Segment(33.0, 33.75, "hello")]  # 0.25 s of silence are before
    assert all(3.2 < seconds < 3.6 for seconds in asked)


def test_a_text_without_times_lasts_as_long_as_its_stretch() -> None:
    found = transcribe_live(lambda sound: Transcript("hello", (), 0.0), blocks(speech(3)), RATE)
    assert list(found) == [Segment(0.0, 3.0, "hello")]
    assert list(transcribe_live(lambda sound: Transcript("  ", (), 0.0), blocks(speech(3)), RATE)) == []
    assert list(transcribe_live(lambda sound: Transcript("x", (), 0.0), iter(()), RATE)) == []


def test_a_stream_that_breaks_off_is_transcribed_before_it_says_so() -> None:
    def broken() -> Iterator[Samples]:
        yield speech(1)
        raise MediaError("stdin is cut short", param="stdin")

    found = transcribe_live(lambda sound: Transcript("hello", (), 0.0), broken(), RATE)
    assert next(found) == Segment(0.0, 1.0, "hello")
    with pytest.raises(MediaError, match="cut short"):
        next(found)


def test_blocks_are_read_while_nobody_takes_them() -> None:
    read = threading.Event()

    def given() -> Iterator[Samples]:
        yield speech(1)
        yield speech(2)
        read.set()

    ahead = read_ahead(given())
    assert len(next(ahead)) == RATE
    assert read.wait(60)
    assert [len(block) for block in ahead] == [2 * RATE]


def test_faults_of_a_stream_come_where_it_is_read() -> None:
    def broken() -> Iterator[Samples]:
        yield speech(1)
        raise MediaError("stdin is cut short", param="stdin")

    ahead = read_ahead(broken())
    assert len(next(ahead)) == RATE
    with pytest.raises(MediaError, match="cut short"):
        next(ahead)

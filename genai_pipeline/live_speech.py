"""Transcribes sound that is still coming in: cuts it where nobody speaks, and tells what was said in each stretch."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from genai_pipeline.errors import MediaError
from genai_pipeline.ops.timed_text import Segment
from genai_pipeline.preprocess.audio.sound import FloatArray, Piece
from genai_pipeline.preprocess.audio.windows import Cuts, cut, loudness
from genai_pipeline.tasks import Transcript

Transcribe = Callable[[tuple[FloatArray, int]], Transcript]
_STEP_SECONDS: Final = 0.05  # in which the first sound is looked for
_AHEAD: Final = 6000  # blocks that are read before they are listened to: ten minutes of blocks of a tenth of a second


@dataclass(frozen=True, slots=True)
class Pauses:
    """Where a stream is cut, in seconds and dBFS: a pause ends a stretch that has at least ``shortest``.

    A stretch of ``longest`` is cut at its quietest place. Stretches with nothing above ``silence`` are not transcribed.
    """

    shortest: float = 2.0
    longest: float = 14.0
    pause: float = 0.5
    silence: float = -45.0


def read_ahead(blocks: Iterable[FloatArray]) -> Iterator[FloatArray]:
    """Blocks read by a thread of their own: whoever speaks does not wait for a transcription, up to a limit."""
    read: queue.Queue[FloatArray | BaseException | None] = queue.Queue(_AHEAD)

    def fill() -> None:
        try:
            for block in blocks:
                read.put(block)
            read.put(None)
        except BaseException as error:  # noqa: BLE001 - raised again where the blocks are read
            read.put(error)

    threading.Thread(target=fill, name="live-sound", daemon=True).start()
    while (item := read.get()) is not None:
        if isinstance(item, BaseException):
            raise item
        yield item


def stretches(blocks: Iterable[FloatArray], rate: int, pauses: Pauses) -> Iterator[tuple[int, FloatArray]]:
    """(first sample, samples) of what is to be transcribed, as soon as it is complete.

    Where the stream breaks off with MediaError, what there is by then comes first.
    """
    start, held = 0, np.empty(0, np.float32)
    broken: MediaError | None = None
    try:
        for block in blocks:
            held = np.concatenate([held, block])
            while count := _complete(held, rate, pauses):
                yield start, held[:count]
                start, held = start + count, held[count:]
    except MediaError as error:
        broken = error
    if len(held):
        yield start, held
    if broken is not None:
        raise broken


def transcribe_live(
    transcribe: Transcribe, blocks: Iterable[FloatArray], rate: int, pauses: Pauses | None = None
) -> Iterator[Segment]:
    """Segments of speech with times from the beginning of the stream; a stretch without timed segments is one."""
    pauses = pauses or Pauses()
    for first, whole in stretches(blocks, rate, pauses):
        quiet = _quiet_before(whole, rate, pauses)
        start, samples = first + quiet, whole[quiet:]
        if not len(samples):
            continue
        offset, seconds = start / rate, len(samples) / rate
        found = transcribe((samples, rate))
        for segment in found.segments or (Segment(0.0, seconds, found.text),):
            if segment.text.strip():
                yield Segment(offset + segment.start, offset + segment.end, segment.text)


def _quiet_before(samples: FloatArray, rate: int, pauses: Pauses) -> int:
    """How many samples at the beginning are silence, but for half a pause before the first sound; all without any."""
    step = max(1, round(_STEP_SECONDS * rate))
    for start in range(0, len(samples), step):
        if loudness(samples[start : start + step], rate) > pauses.silence:
            return max(0, start - round(pauses.pause * rate) // 2)
    return len(samples)


def _complete(held: FloatArray, rate: int, pauses: Pauses) -> int:
    """How many samples make up a stretch by now; 0: it is still going on."""
    quiet = round(pauses.pause * rate)
    if len(held) >= round(pauses.shortest * rate) and loudness(held[-quiet:], rate) <= pauses.silence:
        return len(held) - quiet // 2
    if len(held) < round(pauses.longest * rate):
        return 0
    piece = Piece(held, rate, len(held))
    first = cut(piece, Cuts(pauses.longest * 0.99, search=pauses.longest / 2))[0]
    return first.valid

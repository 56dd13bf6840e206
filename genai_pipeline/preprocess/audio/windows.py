"""Cuts a sound into windows: of one length with overlap, or at the quietest places, so that no word is cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.preprocess.audio.sound import FloatArray, Piece

QUIET_SECONDS: Final = 0.2  # a pause between words; the cut is in the middle of the quietest stretch of this length
_STEP_SECONDS: Final = 0.01  # between the stretches that are compared
_LOUD_SECONDS: Final = 0.05  # the shortest sound that counts as one


@dataclass(frozen=True, slots=True)
class Cuts:
    """How to cut, in seconds: ``search`` is how far before the end of a window a quiet place may be, None: no matter.

    ``silence`` dBFS: windows with nothing louder are left out; None: none are.
    """

    seconds: float
    overlap: float = 0.0
    search: float | None = None
    silence: float | None = None


def cut(piece: Piece, cuts: Cuts) -> tuple[Piece, ...]:
    """The windows of a piece of one channel, in order; they share its memory."""
    length = max(1, round(cuts.seconds * piece.rate))
    if cuts.search is None:
        spans = _even(piece.valid, length, max(1, length - round(cuts.overlap * piece.rate)))
    else:
        spans = _at_quiet_places(piece.samples[: piece.valid], piece.rate, length, round(cuts.search * piece.rate))
    windows = (_window(piece, start, stop) for start, stop in spans)
    return tuple(w for w in windows if cuts.silence is None or loudness(w.samples, w.rate) > cuts.silence)


def loudness(samples: FloatArray, rate: int) -> float:
    """The root mean square of the loudest 50 ms of samples [n], in dB below full scale (dBFS); -inf: all are zero."""
    powers = _powers(samples, min(len(samples), max(1, round(_LOUD_SECONDS * rate))), 1)
    loudest = float(powers.max())
    return 10 * float(np.log10(loudest)) if loudest > 0 else -np.inf


def _window(piece: Piece, start: int, stop: int) -> Piece:
    return replace(piece, samples=piece.samples[start:stop], valid=stop - start, offset=start)


def _even(count: int, length: int, hop: int) -> Iterator[tuple[int, int]]:
    """Windows of one length, ``hop`` apart; the last holds what is left, and none lies wholly in the one before."""
    for start in range(0, count, hop):
        yield start, min(start + length, count)
        if start + length >= count:
            return


def _at_quiet_places(samples: FloatArray, rate: int, length: int, search: int) -> Iterator[tuple[int, int]]:
    start = 0
    while len(samples) - start > length:
        first = start + max(1, length - search)
        stop = first + _quietest(samples[first : start + length], rate)
        yield start, stop
        start = stop
    yield start, len(samples)


def _quietest(samples: FloatArray, rate: int) -> int:
    """The middle of the quietest stretch; of equally quiet ones, of the longest run of them, the last such run."""
    width = min(len(samples), max(1, round(QUIET_SECONDS * rate)))
    step = max(1, round(_STEP_SECONDS * rate))
    powers = _powers(samples, width, step)
    equal = np.flatnonzero(powers == powers.min())
    runs = np.split(equal, np.flatnonzero(np.diff(equal) > 1) + 1)
    longest = max(reversed(runs), key=len)
    return (int(longest[0]) + int(longest[-1])) * step // 2 + width // 2


def _powers(samples: FloatArray, width: int, step: int) -> NDArray[np.float64]:
    """The mean square of each stretch of ``width`` samples, ``step`` apart."""
    squares = np.square(samples, dtype=np.float64)
    sums = np.concatenate([[0.0], np.cumsum(squares)])
    found: NDArray[np.float64] = np.maximum(sums[width:] - sums[:-width], 0.0)[::step] / width
    return found

"""A sound from what a request gives: a file in any of its forms, or samples with their rate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio import sound_files
from genai_pipeline.preprocess.audio.limits import MOST_CHANNELS, SoundLimits
from genai_pipeline.preprocess.audio.sound import FloatArray, Piece, Sound
from genai_pipeline.preprocess.media import read_media
from genai_pipeline.preprocess.program_steps import Source

_SHAPES: Final = "samples are a real array [n] or [channels, n], with their rate in Hz: (samples, rate)"


def read_sound(source: Source, limits: SoundLimits) -> Sound:
    """The decoded sound, [channels, n]: of a path, bytes, a data URL, a file object, or ``(samples, rate)``.

    An object with the attributes ``samples`` and ``rate`` is taken too. Raises MediaError.
    """
    what = source.param or "audio"
    given = _samples_and_rate(source.media)
    if given is None:
        data = read_media(source.media, what, limits.file_bytes)
        samples, rate = sound_files.decode(data, what, limits)
    else:
        samples, rate = _given(*given, what, limits)
    return Sound(what, Piece(samples, rate, samples.shape[-1]))


def _samples_and_rate(media: Any) -> tuple[Any, Any] | None:
    if isinstance(media, tuple | list) and len(media) == 2:
        return media[0], media[1]
    if hasattr(media, "samples") and hasattr(media, "rate"):
        return media.samples, media.rate
    return None


def _given(samples: Any, rate: Any, what: str, limits: SoundLimits) -> tuple[FloatArray, int]:
    if not isinstance(samples, np.ndarray | Sequence) or isinstance(samples, str | bytes):
        raise MediaError(f"{what} has samples of type {type(samples).__name__}", param=what, hint=_SHAPES)
    if isinstance(rate, bool) or not isinstance(rate, int | np.integer):
        raise MediaError(f"{what} has a rate of type {type(rate).__name__}", param=what, hint=_SHAPES)
    try:
        array = np.atleast_2d(np.asarray(samples))
    except (ValueError, OverflowError) as error:
        raise MediaError(f"{what} has samples that make no array: {error}", param=what, hint=_SHAPES) from None
    if array.ndim != 2 or array.shape[0] > MOST_CHANNELS:
        raise MediaError(f"{what} has samples of shape {list(array.shape)}", param=what, hint=_SHAPES)
    if array.size == 0:
        raise MediaError(f"{what} has no samples", param=what)
    limits.check(what, int(rate), array.shape[0], array.shape[1])
    return _as_float(array, what), int(rate)


def _as_float(array: np.ndarray[Any, np.dtype[Any]], what: str) -> FloatArray:
    """Samples in -1 to 1: integers have the range of their type; unsigned bytes are centred at 128, as in WAV files."""
    if array.dtype == np.uint8:
        return (array.astype(np.float32) - 128) / np.float32(128)
    if array.dtype in (np.int16, np.int32):
        return (array / np.float64(-int(np.iinfo(array.dtype).min))).astype(np.float32)
    if array.dtype not in (np.float16, np.float32, np.float64):
        hint = "samples are floats in -1 to 1, or of type uint8, int16 or int32"
        raise MediaError(f"{what} has samples of type {array.dtype}", param=what, hint=hint)
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32)
    if not np.isfinite(floats).all():
        raise MediaError(f"{what} has samples that are no finite numbers", param=what)
    return floats

"""What the steps do that read a sound and shape its samples: decode, mono, resample, window, pad, normalize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio.limits import SoundLimits
from genai_pipeline.preprocess.audio.resampling import resample
from genai_pipeline.preprocess.audio.sound import FloatArray, Piece, Sound
from genai_pipeline.preprocess.audio.sources import read_sound
from genai_pipeline.preprocess.audio.windows import Cuts, cut
from genai_pipeline.preprocess.program_steps import Source

Params = Mapping[str, Any]


def decode(source: Source, given: Params) -> Sound:
    """The sound that a request gives."""
    return read_sound(source, SoundLimits(given["max_seconds"], given["max_bytes"]))


def mono(sound: Sound, _: Params) -> Sound:
    """The mean of the channels."""
    return sound.each(lambda piece: replace(piece, samples=_mixed(piece.samples)))


def _mixed(samples: FloatArray) -> FloatArray:
    return samples[0] if len(samples) == 1 else np.asarray(np.mean(samples, axis=0), np.float32)


def resampled(sound: Sound, given: Params) -> Sound:
    """The sound at another rate."""
    return sound.each(lambda piece: _at_rate(piece, given["rate"], given["quality"]))


def _at_rate(piece: Piece, rate: int, quality: str) -> Piece:
    samples = resample(piece.samples, piece.rate, rate, quality)
    padded = piece.valid < piece.length
    valid = -(-piece.valid * rate // piece.rate) if padded else samples.shape[-1]
    return replace(piece, samples=samples, rate=rate, valid=valid)


def windows(sound: Sound, given: Params) -> Sound:
    """The sound with its windows."""
    seconds, search = given["seconds"], given["search"]
    if given["split"] == "silence":
        search = min(search if search is not None else seconds / 2, seconds)
    cuts = Cuts(seconds, given["overlap"], search, given["silence_level"] if given["skip_silence"] else None)
    return replace(sound, windows=cut(sound.whole, cuts))


def padded(sound: Sound, given: Params) -> Sound:
    """The sound, or each of its windows, padded to a length."""
    return sound.each(lambda piece: _padded(piece, _length(piece, given), given, sound.name))


def _length(piece: Piece, given: Params) -> int:
    if given["multiple"] is not None:
        return int(-(-piece.length // given["multiple"]) * given["multiple"])
    return int(given["samples"] if given["samples"] is not None else max(1, round(given["seconds"] * piece.rate)))


def _padded(piece: Piece, length: int, given: Params, what: str) -> Piece:
    if piece.length > length and given["longer"] == "refuse":
        message = (
            f"{what} has {piece.length / piece.rate:.3f} s in one piece, and at most {length / piece.rate:g} s fit"
        )
        raise MediaError(message, param=what, hint="give a shorter sound, or a package whose program has windows")
    samples = piece.samples[..., :length]
    after = length - samples.shape[-1]
    if after:
        wide = [(0, 0)] * (samples.ndim - 1) + [(0, after)]
        samples = np.pad(samples, wide, constant_values=np.float32(given["value"]))
    return replace(piece, samples=samples, valid=min(piece.valid, length))


def normalized(sound: Sound, given: Params) -> Sound:
    """The sound, or each of its windows, scaled by itself."""
    return sound.each(lambda piece: _normalized(piece, given))


def _normalized(piece: Piece, given: Params) -> Piece:
    sound = piece.samples[..., : piece.valid].astype(np.float64)
    if given["to"] == "unit":
        mean = sound.mean(axis=-1, keepdims=True)
        made = (sound - mean) / np.sqrt(sound.var(axis=-1, keepdims=True) + given["epsilon"])
    else:
        peak = float(np.abs(sound).max())
        made = sound * (given["level"] / peak) if peak > 0 else sound  # silence has no peak to bring to a level
    padding = piece.samples[..., piece.valid :]
    return replace(piece, samples=np.concatenate([made.astype(np.float32), padding], axis=-1))

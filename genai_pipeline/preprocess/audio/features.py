"""The steps that make features and count prompt slots: log_mel and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from genai_pipeline.errors import MediaError
from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.mel_parameters import MEL_PARAMETERS
from genai_pipeline.preprocess.audio.sound import FEATURES, SAMPLES, WINDOW_FEATURES, WINDOWS, Piece, Sound
from genai_pipeline.preprocess.audio.spectrum import MelSettings, log_mel
from genai_pipeline.preprocess.program_steps import Step

Params = Mapping[str, Any]

_SETTINGS: Final = tuple(field.name for field in fields(MelSettings))


def _faults(given: Params) -> Iterator[str]:
    for low, high, fault in (
        ("window_length", "n_fft", "window_length must be at most n_fft"),
        ("fmin", "fmax", "fmin must be at most fmax"),
    ):
        if all(isinstance(given[name], int | float) for name in (low, high)) and given[low] > given[high]:
            yield fault
    if given["scale"] == 0:
        yield "scale must not be 0"


def _log_mel(sound: Sound, given: Params) -> Sound:
    return sound.each(lambda piece: with_features(piece, given, sound.name))


def with_features(piece: Piece, given: Params, what: str) -> Piece:
    """The piece with its spectrum by the parameters of ``log_mel``. Raises MediaError naming ``what``."""
    highest = piece.rate / 2
    filled = {**given, "fmax": given["fmax"] or highest, "window_length": given["window_length"] or given["n_fft"]}
    settings = MelSettings(**{name: filled[name] for name in _SETTINGS})
    if settings.fmax > highest or settings.fmin >= settings.fmax:
        message = f"{what} has {piece.rate} Hz here, and no bands from {settings.fmin:g} to {settings.fmax:g} Hz"
        raise MediaError(message, param=what, hint="log_mel's fmax is at most half of the rate that resample gives")
    if settings.frames(piece.length) == 0:
        message = f"{what} has {piece.length} samples in one piece, too few for a frame of {settings.n_fft}"
        raise MediaError(message, param=what, hint="give a longer sound")
    features = log_mel(piece.samples, piece.rate, settings)
    valid = settings.valid_frames(piece.valid, piece.length)
    return replace(piece, features=features if given["layout"] == "mels_frames" else features.T, valid_frames=valid)


LOG_MEL: Final = Step(
    "log_mel",
    "Logarithms of mel bands, float32 [mels, frames]: log(max(floor, mel filters of |spectrum| ** power)), "
    "cut at range below the maximum, then (x + shift) / scale.",
    {SAMPLES: FEATURES, WINDOWS: WINDOW_FEATURES},
    MEL_PARAMETERS,
    _log_mel,
    publishes=frozenset({"features", "valid_frames"}),
    check=_faults,
)


def _token_faults(given: Params) -> Iterator[str]:
    lists = [given[name] for name in ("kernels", "strides", "paddings")]
    if all(isinstance(found, list | tuple) for found in lists) and len({len(found) for found in lists}) > 1:
        yield "kernels, strides and paddings must have one entry for each layer"


def _tokens(sound: Sound, given: Params) -> Sound:
    counted = sound.each(lambda piece: replace(piece, tokens=_count(piece, given)))
    if counted.windows is None:
        return counted
    total = sum(window.tokens or 0 for window in counted.windows)
    return replace(counted, whole=replace(counted.whole, tokens=total))


def _count(piece: Piece, given: Params) -> int:
    left = piece.valid if piece.valid_frames is None else piece.valid_frames
    for kernel, stride, padding in zip(given["kernels"], given["strides"], given["paddings"], strict=True):
        left = max(0, (left + 2 * padding - kernel) // stride + 1)
    return int(left)


TOKENS: Final = Step(
    "tokens",
    "Counts the slots that a sound, or all its windows, take in a prompt: what a stack of convolutions or poolings "
    "leaves of valid frames, or of valid samples where there are no features: (n + 2 * padding - kernel) // stride + 1 "
    "in each layer.",
    {form: form for form in (SAMPLES, WINDOWS, FEATURES, WINDOW_FEATURES)},
    {
        "kernels": CallParameter("integers", "width of each layer", minimum=1),
        "strides": CallParameter("integers", "step of each layer", minimum=1),
        "paddings": CallParameter("integers", "padding on each side in each layer", minimum=0),
    },
    _tokens,
    publishes=frozenset({"tokens"}),
    totals=frozenset({"tokens"}),
    check=_token_faults,
)

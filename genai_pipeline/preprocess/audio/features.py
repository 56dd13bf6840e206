"""The steps that make features and count prompt slots: log_mel and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from genai_pipeline.errors import MediaError
from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.audio.mel_filters import NORMS, SCALES
from genai_pipeline.preprocess.audio.sound import FEATURES, SAMPLES, WINDOW_FEATURES, WINDOWS, Piece, Sound
from genai_pipeline.preprocess.audio.spectrum import LOGS, PAD_MODES, TAPERS, MelSettings, log_mel
from genai_pipeline.preprocess.program_steps import Step

Params = Mapping[str, Any]

_LAYOUTS: Final = ("mels_frames", "frames_mels")
_PARAMETERS: Final = {
    "n_fft": CallParameter("integer", "samples of a frame", minimum=2, maximum=65536),
    "hop": CallParameter("integer", "samples from one frame to the next", minimum=1),
    "mels": CallParameter("integer", "mel bands", minimum=1, maximum=4096),
    "window_length": CallParameter("integer", "samples of the taper, centred in the frame (n_fft)", None, minimum=1),
    "taper": CallParameter("choice", "periodic window that weights each frame", "hann", values=TAPERS),
    "center": CallParameter("boolean", "pad by n_fft // 2 on both sides, so that frame i is centred at i * hop", True),
    "pad_mode": CallParameter("choice", "with what center pads", "reflect", values=tuple(PAD_MODES)),
    "drop_last": CallParameter("boolean", "leave out the last frame", True),
    "preemphasis": CallParameter("number", "share of the sample before that is taken off", 0.0, minimum=0, maximum=1),
    "power": CallParameter("number", "of the magnitudes: 1 amplitudes, 2 energies", 2.0, minimum=0.01, maximum=8),
    "fmin": CallParameter("number", "where the lowest band begins, in Hz", 0.0, minimum=0),
    "fmax": CallParameter("number", "where the highest band ends, in Hz (half of the rate)", None, minimum=1),
    "mel_scale": CallParameter("choice", "the formula of mels", "slaney", values=SCALES),
    "norm": CallParameter("choice", "slaney: bands of equal area; none: of equal height", "slaney", values=NORMS),
    "log": CallParameter("choice", "logarithm of the bands; db: 20 / power * log10", "log10", values=tuple(LOGS)),
    "floor": CallParameter("number", "least value of a band before the logarithm", 1e-10, minimum=1e-38),
    "range": CallParameter(
        "number", "how far below its maximum a piece may go, in units of the logarithm", None, minimum=0
    ),
    "shift": CallParameter("number", "added to the logarithms", 0.0),
    "scale": CallParameter("number", "the sum is divided by it", 1.0),
    "layout": CallParameter("choice", "order of the axes", "mels_frames", values=_LAYOUTS),
}
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
    return sound.each(lambda piece: _with_features(piece, given, sound.name))


def _with_features(piece: Piece, given: Params, what: str) -> Piece:
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
    _PARAMETERS,
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

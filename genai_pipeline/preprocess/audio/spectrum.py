"""Log mel spectra of a piece of sound: framed, windowed, transformed, summed into mels, taken to a logarithm.

Spectra are computed in float64, and in blocks of frames, so that an hour takes no more memory than what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.preprocess.audio.mel_filters import mel_filters
from genai_pipeline.preprocess.audio.sound import FloatArray

Array = NDArray[np.float64]

PAD_MODES: Final[Mapping[str, str]] = {"reflect": "reflect", "zeros": "constant", "edge": "edge"}
LOGS: Final[Mapping[str, Callable[[Array, float], Array]]] = {
    "log10": lambda energies, _: np.asarray(np.log10(energies)),
    "ln": lambda energies, _: np.asarray(np.log(energies)),
    "db": lambda energies, power: np.asarray(20 / power * np.log10(energies)),
    "none": lambda energies, _: energies,
}
_BLOCK_FRAMES: Final = 4096


@dataclass(frozen=True, slots=True)
class MelSettings:
    """The parameters of ``log_mel``, in samples, Hz and units of the logarithm."""

    n_fft: int
    hop: int
    window_length: int
    taper: str
    center: bool
    pad_mode: str
    drop_last: bool
    preemphasis: float
    power: float
    mels: int
    fmin: float
    fmax: float
    mel_scale: str
    norm: str
    log: str
    floor: float
    range: float | None
    shift: float
    scale: float

    @property
    def shortest(self) -> int:
        """Samples of which there must be at least so many for one frame."""
        return 1 if self.center else self.n_fft + (self.hop if self.drop_last else 0)

    def frames(self, samples: int) -> int:
        """How many frames so many samples give."""
        whole = samples + (self.n_fft // 2 * 2 if self.center else 0)
        found = 1 + (whole - self.n_fft) // self.hop - self.drop_last
        return max(found, 0)

    def valid_frames(self, valid: int, samples: int) -> int:
        """How many of the frames have sound in the part that the frame stands for, padding after ``valid`` samples.

        A centred frame stands for the ``hop`` samples from its centre on, any other for all of its samples.
        """
        if valid == samples:
            return self.frames(samples)
        found = math.ceil(valid / self.hop) if self.center else 1 + (valid - self.n_fft) // self.hop
        return max(0, min(found, self.frames(samples)))


def log_mel(samples: FloatArray, rate: int, settings: MelSettings) -> FloatArray:
    """The features [mels, frames] of samples [n]."""
    s = settings
    signal = _emphasised(samples, s.preemphasis)
    if s.center:
        mode: Any = PAD_MODES[s.pad_mode]
        signal = np.pad(signal, s.n_fft // 2, mode=mode)
    filters = mel_filters(rate, s.n_fft, s.mels, s.fmin, s.fmax, s.mel_scale, s.norm)
    count = s.frames(len(samples))
    features = np.empty((s.mels, count))
    for start in range(0, count, _BLOCK_FRAMES):
        stop = min(start + _BLOCK_FRAMES, count)
        frames = _frames(signal, start, stop, s)
        features[:, start:stop] = _logarithm(filters @ _energies(frames, s).T, s)
    if s.range is not None and features.size:
        np.maximum(features, features.max() - s.range, out=features)
    return ((features + s.shift) / s.scale).astype(np.float32)


def _emphasised(samples: FloatArray, factor: float) -> Array:
    """Each sample less ``factor`` of the one before; the first stays."""
    signal = samples.astype(np.float64)
    if factor:
        signal[1:] -= factor * signal[:-1]
    return signal


def _frames(signal: Array, start: int, stop: int, s: MelSettings) -> Array:
    """Frames [stop - start, n_fft] of the signal, weighted by the taper."""
    stretch = signal[start * s.hop : (stop - 1) * s.hop + s.n_fft]
    frames = np.lib.stride_tricks.sliding_window_view(stretch, s.n_fft)[:: s.hop]
    return np.asarray(frames * taper(s.taper, s.window_length, s.n_fft))


def _energies(frames: Array, s: MelSettings) -> Array:
    spectrum = np.fft.rfft(frames)
    if s.power == 2:
        return np.asarray(spectrum.real**2 + spectrum.imag**2)
    return np.asarray(np.abs(spectrum) ** s.power)


def _logarithm(energies: Array, s: MelSettings) -> Array:
    return LOGS[s.log](np.maximum(energies, s.floor), s.power)


@lru_cache(maxsize=16)
def taper(name: str, length: int, n_fft: int) -> Array:
    """The periodic window of ``length`` samples, centred in ``n_fft``."""
    turn = 2 * np.pi * np.arange(length) / length
    cosine = np.cos(turn)
    shapes = {"hann": 0.5 - 0.5 * cosine, "hamming": 0.54 - 0.46 * cosine, "none": np.ones(length)}
    made = np.zeros(n_fft)
    before = (n_fft - length) // 2
    made[before : before + length] = shapes[name]
    made.flags.writeable = False
    return made

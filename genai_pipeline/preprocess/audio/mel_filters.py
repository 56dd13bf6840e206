"""Mel filter banks: triangles that sum the bins of a spectrum as the ear does.

Two scales are in use. Slaney's (Auditory Toolbox, 1998): linear up to 1 kHz, 3 mels for 200 Hz, then logarithmic,
27 mels for a factor of 6.4. HTK's (O'Shaughnessy, 1987): 2595 log10(1 + f / 700) everywhere. The formulas are our own
because librosa's take 1.5 s and 180 MB to import (numba, scipy); tests hold them to librosa's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LINEAR: Final = 3 / 200  # mels per Hz below the knee
_KNEE: Final = 1000.0  # Hz
_KNEE_MELS: Final = _KNEE * _LINEAR
_LOG_STEP: Final = np.log(6.4) / 27  # log of the factor of one mel above the knee


def to_mels(hertz: Array, scale: str) -> Array:
    """Frequencies in Hz as mels."""
    if scale == "htk":
        return np.asarray(2595 * np.log10(1 + hertz / 700))
    above = _KNEE_MELS + np.log(np.maximum(hertz, _KNEE) / _KNEE) / _LOG_STEP
    return np.where(hertz < _KNEE, hertz * _LINEAR, above)


def to_hertz(mels: Array, scale: str) -> Array:
    """Mels as frequencies in Hz."""
    if scale == "htk":
        return np.asarray(700 * (10 ** (mels / 2595) - 1))
    above = _KNEE * np.exp((np.maximum(mels, _KNEE_MELS) - _KNEE_MELS) * _LOG_STEP)
    return np.where(mels < _KNEE_MELS, mels / _LINEAR, above)


@lru_cache(maxsize=16)
def mel_filters(rate: int, n_fft: int, mels: int, fmin: float, fmax: float, scale: str, norm: str) -> Array:
    """The filter bank [mels, 1 + n_fft // 2]: triangle i rises from corner i to i + 1 and falls to i + 2.

    The corners are evenly spaced in mels from ``fmin`` to ``fmax`` (Hz). ``norm`` slaney: each has the area 2.
    """
    ends = to_mels(np.array([fmin, fmax]), scale)
    corners = to_hertz(np.linspace(ends[0], ends[1], mels + 2), scale)
    bins = np.fft.rfftfreq(n_fft, 1 / rate)
    widths = np.diff(corners)
    rising = (bins - corners[:-2, None]) / widths[:-1, None]
    falling = (corners[2:, None] - bins) / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    if norm == "slaney":
        triangles *= (2 / (corners[2:] - corners[:-2]))[:, None]
    triangles.flags.writeable = False
    return triangles

"""Changes the sample rate: the home of soxr, the resampler behind librosa's default.

librosa itself is not used: importing its resampling takes 2 s and 200 MB (numba, scipy, scikit-learn), soxr's 3 ms.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import ExtraMissingError
from genai_pipeline.preprocess.audio.sound import FloatArray

QUALITIES: Final = ("vhq", "hq", "mq", "lq", "qq")  # from the best to the fastest


def resample(samples: FloatArray, rate: int, to: int, quality: str = "hq") -> FloatArray:
    """Samples [n] or [channels, n] at the rate ``to``: ceil(n * to / rate) of each channel."""
    if rate == to:
        return samples
    length = math.ceil(samples.shape[-1] * to / rate)
    made = _soxr().resample(np.ascontiguousarray(samples.T), rate, to, quality.upper()).T
    if made.shape[-1] < length:  # soxr rounds, so it can be one sample short
        made = np.pad(made, [(0, 0)] * (made.ndim - 1) + [(0, length - made.shape[-1])])
    return np.ascontiguousarray(made[..., :length], dtype=np.float32)


class LiveResampler:
    """Resamples one channel that comes in pieces; all it gives, joined, is what ``resample`` makes of the whole."""

    def __init__(self, rate: int, to: int, quality: str = "hq") -> None:
        self._stream = None if rate == to else _soxr().ResampleStream(rate, to, 1, "float32", quality.upper())

    def feed(self, samples: FloatArray, *, last: bool = False) -> FloatArray:
        """What is ready after these samples [n]; with ``last`` all that is left."""
        if self._stream is None:
            return samples
        made: FloatArray = self._stream.resample_chunk(samples, last=last)
        return made


def _soxr() -> Any:
    try:
        import soxr
    except ImportError as error:
        message = "changing a sample rate needs the library soxr, which is not installed"
        raise ExtraMissingError(message, hint="pip install 'genai-pipeline[audio]'") from error
    return soxr

"""The parameters of log mel spectra, which steps of programs and an operation have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter

TAPERS: Final = ("hann", "hamming", "none")
PAD_MODES: Final = ("reflect", "zeros", "edge")
SCALES: Final = ("slaney", "htk")
NORMS: Final = ("slaney", "none")
LOGS: Final = ("log10", "ln", "db", "none")
LAYOUTS: Final = ("mels_frames", "frames_mels")
MEL_PARAMETERS: Final[Mapping[str, CallParameter]] = {
    "n_fft": CallParameter("integer", "samples of a frame", minimum=2, maximum=65536),
    "hop": CallParameter("integer", "samples from one frame to the next", minimum=1),
    "mels": CallParameter("integer", "mel bands", minimum=1, maximum=4096),
    "window_length": CallParameter("integer", "samples of the taper, centred in the frame (n_fft)", None, minimum=1),
    "taper": CallParameter("choice", "periodic window that weights each frame", "hann", values=TAPERS),
    "center": CallParameter("boolean", "pad by n_fft // 2 on both sides, so that frame i is centred at i * hop", True),
    "pad_mode": CallParameter("choice", "with what center pads", "reflect", values=PAD_MODES),
    "drop_last": CallParameter("boolean", "leave out the last frame", True),
    "preemphasis": CallParameter("number", "share of the sample before that is taken off", 0.0, minimum=0, maximum=1),
    "power": CallParameter("number", "of the magnitudes: 1 amplitudes, 2 energies", 2.0, minimum=0.01, maximum=8),
    "fmin": CallParameter("number", "where the lowest band begins, in Hz", 0.0, minimum=0),
    "fmax": CallParameter("number", "where the highest band ends, in Hz (half of the rate)", None, minimum=1),
    "mel_scale": CallParameter("choice", "the formula of mels", "slaney", values=SCALES),
    "norm": CallParameter("choice", "slaney: bands of equal area; none: of equal height", "slaney", values=NORMS),
    "log": CallParameter("choice", "logarithm of the bands; db: 20 / power * log10", "log10", values=LOGS),
    "floor": CallParameter("number", "least value of a band before the logarithm", 1e-10, minimum=1e-38),
    "range": CallParameter(
        "number", "how far below its maximum a piece may go, in units of the logarithm", None, minimum=0
    ),
    "shift": CallParameter("number", "added to the logarithms", 0.0),
    "scale": CallParameter("number", "the sum is divided by it", 1.0),
    "layout": CallParameter("choice", "order of the axes", "mels_frames", values=LAYOUTS),
}

"""The program of Whisper's features: a sound in windows, each as log-mel frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.importers.package_writer import flow

RATE: Final = 16000  # samples per second of what is cut into frames


@dataclass(frozen=True, slots=True)
class AudioProgram:
    """Numbers of the log-mel features: samples of a frame and between frames, bands, seconds of a window."""

    n_fft: int
    hop: int
    mels: int
    seconds: int

    @property
    def frames(self) -> int:
        """Feature frames of a window."""
        return self.seconds * RATE // self.hop

    def lines(self) -> list[str]:
        """The program ``log_mel``. Scale and floor are those of the step of that name: Slaney's bands, log10."""
        log_mel: Mapping[str, Any] = {"n_fft": self.n_fft, "hop": self.hop, "mels": self.mels, "mel_scale": "slaney"}
        log_mel = {**log_mel, "log": "log10", "floor": 1e-10, "range": 8.0, "shift": 4.0, "scale": 4.0}
        return [
            "preprocess:",
            "  log_mel:",
            "    - decode: {}",
            "    - mono: {}",
            f"    - resample: {{rate: {RATE}}}",
            f"    - window: {{seconds: {self.seconds}, split: silence, skip_silence: true}}",
            f"    - pad: {{seconds: {self.seconds}}}",
            f"    - log_mel: {flow(log_mel)}",
        ]

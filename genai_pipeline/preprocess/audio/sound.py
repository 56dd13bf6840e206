"""The value under work in an audio program: a sound, whole or in windows, and the fields that become of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

# Forms of the value under work; errors name them.
CHANNELS: Final = "channels of samples"
SAMPLES: Final = "samples of one channel"
WINDOWS: Final = "windows of samples"
FEATURES: Final = "features"
WINDOW_FEATURES: Final = "features of windows"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of sound: ``samples`` are float32, [n], or [channels, n] before they are mixed.

    The first ``valid`` samples are sound, the others padding. ``offset`` is where in the sound it begins, in samples.
    """

    samples: FloatArray
    rate: int  # samples per second
    valid: int
    offset: int = 0
    features: FloatArray | None = None
    valid_frames: int | None = None
    tokens: int | None = None

    @property
    def length(self) -> int:
        """Samples of each channel, padding among them."""
        return int(self.samples.shape[-1])

    @property
    def seconds(self) -> float:
        """How long the sound is, without padding."""
        return self.valid / self.rate

    def fields(self) -> dict[str, Any]:
        """What the piece publishes: what no step has made is not there."""
        made = {"features": self.features, "valid_frames": self.valid_frames, "tokens": self.tokens}
        found = {name: value for name, value in made.items() if value is not None}
        return {"samples": self.samples, "seconds": self.seconds, **found}

    def window(self) -> dict[str, Any]:
        """What the piece publishes as one of the windows of a sound; times in seconds."""
        return {**self.fields(), "start": self.offset / self.rate, "end": (self.offset + self.valid) / self.rate}


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound under work; ``name`` is the input's, for errors. Once there are windows, steps work on each of them."""

    name: str
    whole: Piece
    windows: tuple[Piece, ...] | None = None

    def each(self, change: Callable[[Piece], Piece]) -> Sound:
        """The sound with the whole of it changed, or each of its windows."""
        if self.windows is None:
            return replace(self, whole=change(self.whole))
        return replace(self, windows=tuple(change(window) for window in self.windows))

    def fields(self) -> dict[str, Any]:
        """The item's fields. A sound that was not cut has one window."""
        fields = self.whole.fields()
        if self.windows is None:
            return {**fields, "windows": [self.whole.window()]}
        return {**fields, "windows": [window.window() for window in self.windows]}

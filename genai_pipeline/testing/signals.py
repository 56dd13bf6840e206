"""Pictures and sounds whose closed-form answers are known: quarters of pure colours, and tones."""

from __future__ import annotations

import io
import wave
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.testing.graphs.senses import PITCHES, RATE

COLOURS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")  # number r + 2 g + 4 b
LEVEL_WORDS: Final = ("quiet", "soft", "loud")
PITCH_WORDS: Final = tuple(f"{pitch}Hz" for pitch in PITCHES)

Pixels = NDArray[np.uint8]
Samples = NDArray[np.float32]


def quarters(*colours: str, side: int = 8) -> Pixels:
    """A picture uint8 [side, side, 3] whose quarters have these colours, in reading order."""
    codes = [COLOURS.index(colour) for colour in colours]
    block = np.array([[255 * (code >> bit & 1) for bit in range(3)] for code in codes], np.uint8).reshape(2, 2, 3)
    return block.repeat(side // 2, axis=0).repeat(side // 2, axis=1)


def tone(pitch: str, level: str = "loud", *, rate: int = RATE) -> Samples:
    """A tenth of a second of a sine, float32 [rate / 10]."""
    amplitude = {"quiet": 0.02, "soft": 0.2, "loud": 0.8}[level]
    times = np.arange(rate // 10) / rate
    return (amplitude * np.sin(2 * np.pi * int(pitch.removesuffix("Hz")) * times)).astype(np.float32)


def wav_bytes(samples: Samples, rate: int = RATE) -> bytes:
    """A sound as a 16-bit WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return file.getvalue()

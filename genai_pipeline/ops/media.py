"""Sounds and pictures that requests give back, and their files: WAV, PNG, JPEG.

``audio_of`` and ``images_of`` make them of what a graph gives; a WAV header for a length that is not known yet begins a
stream.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import OperationFailedError

Samples = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Layout = Literal["chw", "hwc", "nchw", "nhwc"]
_UNKNOWN: Final = 0xFFFFFFFF  # a size that streams write in front of samples they have not made yet
_PNG_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_PEAK: Final = 32767  # the largest 16-bit sample


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """A sound: float32 samples [n] or [channels, n], between -1 and 1, and how many there are per second."""

    samples: Samples
    rate: int

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return 1 if self.samples.ndim == 1 else self.samples.shape[0]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return float(self.samples.shape[-1] / self.rate)

    def wav(self) -> bytes:
        """A WAV file of 16-bit samples."""
        data = self.pcm()
        return wav_header(self.rate, self.channels, len(data)) + data

    def pcm(self) -> bytes:
        """16-bit little-endian samples, channel by channel; what lies beyond -1 and 1 is cut off there."""
        return np.rint(np.clip(self.samples, -1, 1) * _PEAK).astype("<i2").T.tobytes()

    def save(self, path: str | Path) -> None:
        """Write a WAV file."""
        Path(path).write_bytes(self.wav())


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A picture: pixels uint8 [h, w, 3]."""

    pixels: Pixels

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def png(self) -> bytes:
        """A PNG file."""
        width, height = self.size
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB, no interlacing
        rows = np.zeros((height, 1 + 3 * width), np.uint8)  # filter 0 in front of every row
        rows[:, 1:] = self.pixels.reshape(height, -1)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
        return _PNG_SIGNATURE + b"".join(_png_chunk(kind, data) for kind, data in chunks)

    def jpeg(self, quality: int = 90) -> bytes:
        """A JPEG file; ``quality`` goes from 1 to 95. Raises ExtraMissingError without pillow."""
        from genai_pipeline.preprocess.image.pillow import of_pixels

        file = BytesIO()
        of_pixels(self.pixels).save(file, "JPEG", quality=quality)
        return file.getvalue()

    def save(self, path: str | Path) -> None:
        """Write a file in the format of its suffix: .png, or .jpg and .jpeg. Raises ValueError for another."""
        suffix = Path(path).suffix.lower()
        if suffix not in (".png", ".jpg", ".jpeg"):
            raise ValueError(f"an image is saved as .png or .jpg, not as {suffix or 'a name without suffix'}")
        Path(path).write_bytes(self.png() if suffix == ".png" else self.jpeg())


def wav_header(rate: int, channels: int = 1, data_bytes: int | None = None) -> bytes:
    """What stands in front of 16-bit samples in a WAV file; ``data_bytes`` None: a stream, its length is not known."""
    size = _UNKNOWN if data_bytes is None else data_bytes
    whole = _UNKNOWN if data_bytes is None else 36 + data_bytes
    block = 2 * channels  # bytes of one sample of every channel
    layout = struct.pack("<IHHIIHH", 16, 1, channels, rate, block * rate, block, 16)
    return b"RIFF" + struct.pack("<I", whole) + b"WAVEfmt " + layout + b"data" + struct.pack("<I", size)


def audio_of(value: Any, rate: int) -> Audio:
    """A sound of an array whose last axis are samples, and the one before, if it is longer than 1, channels.

    Raises OperationFailedError for other shapes and for samples that are no numbers.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.ndim == 0 or not np.isfinite(array).all():
        raise OperationFailedError(f"no sound: {array.dtype} samples of shape {list(array.shape)}, or not all finite")
    samples = _as_unit(array)
    shape = [size for size in samples.shape[:-1] if size != 1]
    if len(shape) > 1:
        raise OperationFailedError(f"no sound: samples of shape {list(array.shape)}", hint="[1, n] or [1, channels, n]")
    return Audio(np.ascontiguousarray(samples.reshape(*shape, samples.shape[-1])), rate)


def images_of(value: Any, layout: Layout = "nchw", black_white: Sequence[float] = (0, 1)) -> list[Image]:
    """The pictures of an array; ``black_white``: the values that mean black and white. One channel becomes grey.

    Raises OperationFailedError for other shapes and for numbers that are none.
    """
    array = np.asarray(value)
    if layout in ("chw", "hwc"):
        array = array[np.newaxis] if array.ndim == 3 else array
    if layout.endswith("chw") and array.ndim == 4:
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in array.shape or not np.isfinite(array).all():
        text = f"no picture: {array.dtype} numbers of shape {list(np.shape(value))} in the layout {layout}"
        raise OperationFailedError(text, hint="1 or 3 channels, and finite numbers")
    black, white = black_white
    if array.dtype != np.uint8 or (black, white) != (0, 255):
        levels = (array.astype(np.float32) - black) * (255 / (white - black))
        array = np.rint(np.clip(levels, 0, 255)).astype(np.uint8)
    return [Image(np.ascontiguousarray(np.broadcast_to(item, (*item.shape[:2], 3)))) for item in array]


def _as_unit(array: npt.NDArray[Any]) -> Samples:
    """Samples between -1 and 1; whole numbers are scaled by their type's range."""
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    limits = np.iinfo(array.dtype)
    middle = (int(limits.max) + int(limits.min) + 1) // 2
    return ((array.astype(np.float64) - middle) / (int(limits.max) + 1 - middle)).astype(np.float32)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

"""The value under work of image programs: pictures on their way to numbers, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import MediaError

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
Array = npt.NDArray[Any]  # Pixels, or float32 of the same axes
Size = tuple[int, int]  # height, width

# Forms of the value under work.
IMAGE: Final = "an image"
TILES: Final = "tiles of an image"
NUMBERS: Final = "an image in numbers"
TILE_NUMBERS: Final = "tiles in numbers"
ARRANGED: Final = "an array in its final layout"
PATCHES: Final = "patches"

MAX_PIXELS: Final = 2**26  # of anything a step makes: the bound of its memory


@dataclass(frozen=True, slots=True)
class Picture:
    """Arrays [h, w, c], one or one per tile, with what the steps so far have published.

    ``original`` is the size of the upright picture as it was read, ``decoded`` its pixels for as long as a step may
    want them; ``canvas`` is the box that the last resize fitted the picture into.
    """

    arrays: tuple[Array, ...]
    original: Size
    decoded: Pixels | None
    param: str | None
    canvas: Size | None = None
    scale: tuple[float, float] | None = None  # height and width, against the decoded picture
    tiles: tuple[int, int] | None = None  # rows, columns
    masks: tuple[npt.NDArray[np.int64], ...] | None = None  # one per array, [h, w]: 1 for the picture, 0 for padding

    @property
    def size(self) -> Size:
        """Height and width of the picture, or of the first tile."""
        return size_of(self.arrays[0])


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a step leaves that gives the pixels their last shape: the array, and the fields besides it."""

    pixels: Array
    fields: dict[str, Any]


def size_of(array: Array) -> Size:
    """Height and width of an array [h, w, c]."""
    return array.shape[0], array.shape[1]


def fail(param: str | None, message: str, hint: str = "") -> MediaError:
    """The error of a picture that a step cannot take."""
    return MediaError(message, param=param, hint=hint)


def check_work(param: str | None, height: int, width: int, what: str) -> None:
    """Refuse an array that no step should make. Raises MediaError."""
    if height * width > MAX_PIXELS:
        raise fail(param, f"{what} would have {height} x {width} pixels", "its sides differ too much: crop it first")

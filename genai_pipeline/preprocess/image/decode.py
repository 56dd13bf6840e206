"""The step ``decode``: upright pixels of whatever a request gives, with limits that hold before anything is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.headers import jpeg_scans, webp_size
from genai_pipeline.preprocess.image.picture import IMAGE, MAX_PIXELS, Picture, Pixels, fail, size_of
from genai_pipeline.preprocess.media import read_media
from genai_pipeline.preprocess.program_steps import SOURCE, Source, Step

_UNNAMED: Final = "the image"
_SCANNED_PIXELS: Final = 2**31  # most scans of a JPEG times pixels
_ARRAY_CHANNELS: Final = (1, 3, 4)


def decode(source: Source, params: Mapping[str, Any]) -> Picture:
    """The upright picture of a source: path, bytes, data URL, file object, Pillow image or uint8 array."""
    from genai_pipeline.preprocess.image import pillow

    what = source.param or _UNNAMED
    data = b""
    media = getattr(source.media, "pixels", source.media)  # a picture that a pipeline has made carries an array
    if isinstance(media, np.ndarray):
        image = pillow.of_pixels(_checked_array(media, what))
    elif pillow.is_image(media):
        image = media
    else:
        data = read_media(media, what, params["max_bytes"])
        _check_size(webp_size(data) or (1, 1), params["max_pixels"], what)
        image = pillow.open_image(data, what)
    _check_size(image.size, params["max_pixels"], what)
    _check_scans(jpeg_scans(data), image.size, what)
    pillow.load(image, what)
    turn = pillow.orientation(image)
    background = params["background"] if params["alpha"] == "blend" else None
    decoded = upright(pillow.pixels(image, params["mode"], background, params["deep"], what), turn)
    return Picture((decoded,), size_of(decoded), decoded, source.param)


def upright(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels turned as their EXIF orientation says, which tells where the first row and column of the file belong."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    flips = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
    down, right = flips.get(orientation, (1, 1))
    return np.ascontiguousarray(pixels[::down, ::right])


def _checked_array(array: np.ndarray[Any, Any], what: str) -> Pixels:
    right_shape = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in _ARRAY_CHANNELS)
    if array.dtype != np.uint8 or not right_shape:
        message = f"{what} is an array of {array.dtype} and shape {list(array.shape)}"
        raise fail(what, message, "give uint8 of shape [height, width] or [height, width, 1, 3 or 4 channels]")
    if not array.size:
        raise fail(what, f"{what} is an empty array")
    return np.ascontiguousarray(array)


_MAX_SIDE: Final = 1 << 20  # steps of a longer, thin picture would take far more memory than it has


def _check_size(size: tuple[int, int], max_pixels: int, what: str) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise fail(what, f"{what} has no pixels: {width} x {height}")
    if max(width, height) > _MAX_SIDE:
        raise fail(what, f"{what} has {width} x {height} pixels", f"a side has at most {_MAX_SIDE}")
    if width * height > max_pixels:
        raise fail(what, f"{what} has {width} x {height} pixels", f"at most {max_pixels} pixels are decoded")


def _check_scans(scans: int, size: tuple[int, int], what: str) -> None:
    width, height = size
    if scans * width * height > _SCANNED_PIXELS:
        message = f"{what} is a JPEG with {scans} scans of {width} x {height} pixels"
        raise fail(what, message, "save it again as a plain JPEG")


DECODE: Final = Step(
    name="decode",
    doc="Reads the first frame of a picture, upright (EXIF orientation), as 8-bit samples.",
    forms={SOURCE: IMAGE},
    parameters={
        "mode": CallParameter("choice", "channels: colour, grey, or colour with alpha", "RGB", ("RGB", "L", "RGBA")),
        "alpha": CallParameter(
            "choice",
            "what becomes of transparency: blended with the background, or dropped",
            "blend",
            ("blend", "drop"),
        ),
        "background": CallParameter(
            "integers", "colour under what is transparent, 0 to 255", [255, 255, 255], minimum=0, maximum=255, count=3
        ),
        "deep": CallParameter(
            "choice",
            "samples of 16 bits: cut off at 255 as Pillow does, or scaled from 0..65535 to 0..255",
            "clip",
            ("clip", "scale"),
        ),
        "max_bytes": CallParameter("integer", "largest file, in bytes", 2**26, minimum=1, maximum=2**31),
        "max_pixels": CallParameter(
            "integer", "largest picture, in pixels, refused by its header", MAX_PIXELS, minimum=1, maximum=MAX_PIXELS
        ),
    },
    run=decode,
    publishes=frozenset({"pixels", "original"}),
)

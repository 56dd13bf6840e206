"""Pillow's home: pictures of bytes, their pixels, and resampling. Pixels are uint8 [height, width, channels].

Only formats of everyday use are read, by Pillow's decoders in C. Sizes are known from the header; whoever opens a
picture checks them before asking for its pixels.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import ExtraMissingError, MediaError
from genai_pipeline.preprocess.image.picture import Pixels

try:
    from PIL import Image
except ImportError as error:
    raise ExtraMissingError("images need pillow", hint="pip install 'genai-pipeline[image]'") from error

_FORMATS: Final = {
    "JPEG": "JpegImagePlugin",
    "PNG": "PngImagePlugin",
    "WEBP": "WebPImagePlugin",
    "GIF": "GifImagePlugin",
    "BMP": "BmpImagePlugin",
    "TIFF": "TiffImagePlugin",
    "PPM": "PpmImagePlugin",
    "AVIF": "AvifImagePlugin",
}
for _plugin in ("MpoImagePlugin", *_FORMATS.values()):  # MPO: several JPEGs in one file, of which the first counts
    importlib.import_module(f"PIL.{_plugin}")

RESAMPLE: Final[Mapping[str, Image.Resampling]] = {
    kind.name.lower(): kind for kind in Image.Resampling if kind.name != "ANTIALIAS"
}
_ORIENTATION: Final = 0x0112  # EXIF tag
_SIGNATURE_BYTES: Final = 16
_DEEP_MODES: Final = frozenset({"I;16", "I;16B", "I;16L", "I;16N", "I"})
_DEEP_WHITE: Final = 65535
# What Pillow raises for files that are broken in one way or another; under -W error its warnings too.
_BROKEN: Final = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Warning,
)


def is_image(source: Any) -> bool:
    """Whether a source is a picture that Pillow has opened."""
    return isinstance(source, Image.Image)


def open_image(data: bytes, what: str) -> Image.Image:
    """The picture of a file's bytes, of which only the header is read. Raises MediaError for what is none."""
    # Image.open would do, but warns of large pictures before their size can be refused.
    for name in _FORMATS:
        factory, accept = Image.OPEN[name]
        if accept is None or accept(data[:_SIGNATURE_BYTES]) is True:
            try:
                return factory(BytesIO(data), "")
            except _BROKEN as error:
                raise _broken(what, name, error) from error
    message = f"{what} is no picture in a format that is read"
    raise MediaError(message, param=what, hint=f"formats are {', '.join(_FORMATS)}")


def load(image: Image.Image, what: str) -> None:
    """Decode a picture's pixels. Raises MediaError for a file that is truncated or broken."""
    decoders = [tile[0] for tile in getattr(image, "tile", ())]
    slow = next((name for name in decoders if name in Image.DECODERS), None)  # written in Python, pixel by pixel
    if slow is not None:
        raise MediaError(f"{what} is compressed in a way that is not read ({slow})", param=what, hint="use PNG")
    try:
        image.load()
    except _BROKEN as error:
        raise _broken(what, image.format or "picture", error) from error
    except MemoryError as error:
        raise MediaError(f"{what} needs more memory than there is", param=what, hint="give a smaller one") from error


def orientation(image: Image.Image) -> int:
    """The EXIF orientation of a loaded picture, 1 to 8; 1 where there is none, or the EXIF data cannot be read."""
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except _BROKEN:
        return 1  # as browsers do: what EXIF data says beside the pixels may be lost, the picture is not
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def pixels(image: Image.Image, mode: str, background: Sequence[int] | None, deep: str, what: str) -> Pixels:
    """Pixels of a loaded picture in ``mode`` (RGB, L or RGBA), from whatever mode it has.

    ``background``: the colour under what is transparent, None: alpha is dropped. ``deep``: samples beyond 8 bits are
    cut off at 255 ("clip") or brought from 0 to 65535 into 0 to 255 ("scale"). Raises MediaError.
    """
    try:
        if deep == "scale":
            image = _shallow(image, what)
        return _array(_converted(image, mode, background))
    except _BROKEN as error:
        raise _broken(what, f"picture in mode {image.mode}", error) from error


def resized(source: Pixels, size: tuple[int, int], resample: str) -> Pixels:
    """Pixels brought to ``size``, (height, width), in the fixed point arithmetic of Pillow."""
    if source.shape[:2] == size:
        return source
    height, width = size
    image = Image.fromarray(source[:, :, 0] if source.shape[2] == 1 else source)
    return _array(image.resize((width, height), RESAMPLE[resample]))


def of_pixels(source: npt.NDArray[np.uint8]) -> Image.Image:
    """A picture of uint8 pixels [h, w] or [h, w, 1, 3 or 4 channels]."""
    return Image.fromarray(source[:, :, 0] if source.ndim == 3 and source.shape[2] == 1 else source)


def _converted(image: Image.Image, mode: str, background: Sequence[int] | None) -> Image.Image:
    if image.mode == "La":  # premultiplied; Pillow converts it to nothing else
        image = image.convert("LA")
    has_alpha = "A" in image.getbands() or image.info.get("transparency") is not None
    if mode == "RGBA" or not has_alpha:
        return image if image.mode == mode else image.convert(mode)
    image = image.convert("RGBA")
    if background is not None:
        canvas = Image.new("RGBA", image.size, (*(int(level) for level in background), 255))
        image = Image.alpha_composite(canvas, image)
    return image.convert("RGB").convert(mode)


def _shallow(image: Image.Image, what: str) -> Image.Image:
    if image.mode == "F":
        message = f"{what} has floating point samples, which have no range to scale from"
        raise MediaError(message, param=what, hint="give it with 8 or 16 bits, or use deep: clip")
    if image.mode not in _DEEP_MODES:
        return image
    levels = np.asarray(image)
    if levels.size and (levels.min() < 0 or levels.max() > _DEEP_WHITE):
        raise MediaError(f"{what} has samples beyond 16 bits", param=what, hint="give it with 8 or 16 bits")
    return Image.fromarray(((levels.astype(np.uint32) * 255 + _DEEP_WHITE // 2) // _DEEP_WHITE).astype(np.uint8))


def _array(image: Image.Image) -> Pixels:
    # np.asarray would ask for the bytes twice.
    return np.frombuffer(image.tobytes(), np.uint8).reshape(image.height, image.width, len(image.getbands()))


def _broken(what: str, kind: str, error: BaseException) -> MediaError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return MediaError(f"{what} is a {kind} that cannot be decoded: {reason}", param=what, hint="the file is damaged")

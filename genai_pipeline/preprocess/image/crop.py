"""The steps ``crop`` and ``pad``: fewer pixels, or more of them, without resampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.picture import (
    IMAGE,
    NUMBERS,
    TILE_NUMBERS,
    TILES,
    Array,
    Picture,
    Size,
    check_work,
    fail,
    size_of,
)
from genai_pipeline.preprocess.program_steps import Step

_ALIGN: Final = ("start", "center")
_FILL: Final = CallParameter("numbers", "the value of new pixels: one, or one per channel", [0])
_SAME: Final = {form: form for form in (IMAGE, TILES, NUMBERS, TILE_NUMBERS)}


def crop(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """Cut every array of a picture to ``size``; where it is smaller, it is filled up around its centre."""
    target: Size = (params["size"][0], params["size"][1])
    check_work(picture.param, target[0] * len(picture.arrays), target[1], "the picture")
    arrays = tuple(_cropped(array, target, params, picture.param) for array in picture.arrays)
    return replace(picture, arrays=arrays, canvas=None, masks=None)


def pad(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """Fill every array of a picture up, and tell in a mask what is picture. Raises MediaError for what is larger."""
    targets = [_padded_size(size_of(array), params, picture) for array in picture.arrays]
    check_work(picture.param, sum(height for height, _ in targets), max(width for _, width in targets), "the picture")
    arrays, masks = [], []
    for array, target in zip(picture.arrays, targets, strict=True):
        height, width = size_of(array)
        if target[0] < height or target[1] < width:
            message = f"a picture of {height} x {width} pixels cannot be padded to {target[0]} x {target[1]}"
            raise fail(picture.param, message, "resize it first")
        corner = _corner(size_of(array), target, params["align"])
        mask = np.zeros(target, np.int64)
        mask[corner[0] : corner[0] + height, corner[1] : corner[1] + width] = 1
        masks.append(mask)
        arrays.append(_placed(array, target, corner, params["fill"], picture.param))
    return replace(picture, arrays=tuple(arrays), masks=tuple(masks))


def _cropped(array: Array, target: Size, params: Mapping[str, Any], param: str | None) -> Array:
    height, width = size_of(array)
    centred = params["align"] == "center"
    top, left = (max(0, side - new) // 2 if centred else 0 for side, new in zip((height, width), target, strict=True))
    cut = array[top : top + target[0], left : left + target[1]]
    if size_of(cut) == target:
        return cut
    # As in transformers, the odd row or column of the filling comes before the picture.
    corner = tuple(-(-(new - side) // 2) if centred else 0 for side, new in zip(size_of(cut), target, strict=True))
    return _placed(cut, target, (corner[0], corner[1]), params["fill"], param)


def _padded_size(size: Size, params: Mapping[str, Any], picture: Picture) -> Size:
    if params["size"] is not None:
        return params["size"][0], params["size"][1]
    if params["multiple"] is not None:
        height, width = (-(-side // params["multiple"]) * params["multiple"] for side in size)
        return height, width
    if params["shape"] == "square":
        return max(size), max(size)
    if picture.canvas is None:
        message = "the program pads to the box of a resize, and no resize before it fits into a box"
        raise fail(picture.param, message, "give pad a size")
    return picture.canvas


def _corner(size: Size, target: Size, align: str) -> Size:
    if align == "start":
        return 0, 0
    return (target[0] - size[0]) // 2, (target[1] - size[1]) // 2


def _placed(array: Array, target: Size, corner: Size, fill: Sequence[float], param: str | None) -> Array:
    height, width = size_of(array)
    if (height, width) == target:
        return array
    canvas = np.empty((*target, array.shape[2]), array.dtype)
    canvas[:] = _filling(array, fill, param)
    canvas[corner[0] : corner[0] + height, corner[1] : corner[1] + width] = array
    return canvas


def _filling(array: Array, fill: Sequence[float], param: str | None) -> npt.NDArray[Any]:
    assert len(fill) in (1, array.shape[2]), "found with the program"
    levels = np.asarray(fill)
    if array.dtype == np.uint8 and ((levels < 0) | (levels > 255) | (levels != np.rint(levels))).any():
        message = f"fill is {list(fill)}, and pixels are whole numbers from 0 to 255 here"
        raise fail(param, message, "pad after rescale for other values")
    return levels.astype(array.dtype)


def _check_pad(params: Mapping[str, Any]) -> Iterator[str]:
    given = [name for name in ("size", "multiple", "shape") if params[name] is not None]
    if len(given) > 1:
        yield f"{' and '.join(given)} exclude each other"


CROP: Final = Step(
    name="crop",
    doc="Cuts the picture, or each tile, to a size; fills it up where it is smaller.",
    forms=_SAME,
    parameters={
        "size": CallParameter("integers", "[height, width] in pixels", minimum=1, count=2),
        "align": CallParameter("choice", "which part is kept", "center", _ALIGN),
        "fill": _FILL,
    },
    run=crop,
    withdraws=frozenset({"mask"}),
)
PAD: Final = Step(
    name="pad",
    doc="Fills the picture, or each tile, up to a size; without one, to the box that the last resize fitted it into.",
    forms=_SAME,
    parameters={
        "size": CallParameter("integers", "[height, width] in pixels", None, minimum=1, count=2),
        "multiple": CallParameter("integer", "sides grow to whole multiples of it, in pixels", None, minimum=1),
        "shape": CallParameter("choice", "square: the shorter side grows to the longer one", None, ("square",)),
        "align": CallParameter("choice", "where the picture lies", "start", _ALIGN),
        "fill": _FILL,
    },
    run=pad,
    publishes=frozenset({"mask"}),
    check=_check_pad,
)

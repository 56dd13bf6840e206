"""The steps that make numbers of pixels: ``rescale``, ``normalize``, ``layout``; and the fields of a finished item.

All arithmetic is float32, in place once the array is the program's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.picture import (
    ARRANGED,
    IMAGE,
    NUMBERS,
    TILE_NUMBERS,
    TILES,
    Array,
    Picture,
    Prepared,
    fail,
)
from genai_pipeline.preprocess.program_steps import Step

_BYTE: Final = 1 / 255
_PER_CHANNEL: Final = frozenset({"mean", "std", "fill"})  # parameters with one value, or one per channel


def rescale(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """pixel * factor + offset, as float32."""
    arrays = []
    for array in picture.arrays:
        numbers = np.multiply(array, np.float32(params["factor"]), dtype=np.float32)
        if params["offset"]:
            numbers += np.float32(params["offset"])
        arrays.append(numbers)
    return replace(picture, arrays=tuple(arrays), decoded=None)


def normalize(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """(number - mean) / std for each channel."""
    mean, std = (np.asarray(params[name], np.float32) for name in ("mean", "std"))
    assert {mean.size, std.size} <= {1, picture.arrays[0].shape[2]}, "found with the program"
    if not (std > 0).all():
        raise fail(picture.param, f"std is {list(params['std'])}, and must be greater than 0")
    arrays = []
    for array in picture.arrays:
        numbers = array - mean
        numbers /= std
        arrays.append(numbers)
    return replace(picture, arrays=tuple(arrays))


def layout(picture: Picture, params: Mapping[str, Any]) -> Prepared:
    """The order of axes and channels that a graph wants."""
    if params["channels"] == "reverse":
        picture = replace(picture, arrays=tuple(array[:, :, ::-1] for array in picture.arrays))
    return Prepared(_stacked(picture, channels_first=params["axes"] == "chw"), fields(picture))


def finish(value: Picture | Prepared) -> dict[str, Any]:
    """The fields of an item: pixels [channels, height, width], before them tiles, unless a step has arranged them."""
    if isinstance(value, Picture):
        value = Prepared(_stacked(value, channels_first=True), fields(value))
    return {"pixels": value.pixels, **value.fields}


def fields(picture: Picture) -> dict[str, Any]:
    """What is published of a picture besides its pixels."""
    found: dict[str, Any] = {"original": np.asarray(picture.original, np.int64)}
    if picture.scale is not None:
        found["scale"] = np.asarray(picture.scale, np.float32)
    if picture.tiles is not None:
        found["tiles"] = np.asarray(picture.tiles, np.int64)
    if picture.masks is not None:
        found["mask"] = picture.masks[0] if picture.tiles is None else np.stack(picture.masks)
    return found


def _stacked(picture: Picture, *, channels_first: bool) -> Array:
    order = (2, 0, 1) if channels_first else (0, 1, 2)
    views = [array.transpose(order) for array in picture.arrays]
    if len({view.shape for view in views}) > 1:
        sizes = sorted({f"{array.shape[0]} x {array.shape[1]}" for array in picture.arrays})
        message = f"the tiles of the picture differ in size: {', '.join(sizes)}"
        raise fail(picture.param, message, "resize, crop or pad them to one size")
    if picture.tiles is None:
        return np.ascontiguousarray(views[0])
    stacked = np.empty((len(views), *views[0].shape), views[0].dtype)
    for index, view in enumerate(views):
        stacked[index] = view
    return stacked


def check_channels(steps: Sequence[tuple[Step, Mapping[str, Any]]]) -> Iterator[tuple[int, str]]:
    """Steps of a program with another number of values than the decoded mode has channels: (place, fault)."""
    mode = next((params["mode"] for _, params in steps if "mode" in params), "")
    for place, (_, params) in enumerate(steps):
        for name in _PER_CHANNEL & params.keys():
            given = params[name]
            if isinstance(given, list | tuple) and len(given) not in (1, len(mode)):
                yield place, f"{name} has {len(given)} values, and channels of {mode} are {len(mode)}"


def _check_std(params: Mapping[str, Any]) -> Iterator[str]:
    if any(isinstance(number, int | float) and not number > 0 for number in params["std"]):
        yield f"std is {params['std']!r}, and must be greater than 0"


RESCALE: Final = Step(
    name="rescale",
    doc="Makes float32 numbers of 8-bit samples: sample * factor + offset.",
    forms={IMAGE: NUMBERS, TILES: TILE_NUMBERS},
    parameters={
        "factor": CallParameter("number", "what a sample of 0 to 255 is multiplied by", _BYTE),
        "offset": CallParameter("number", "what is added then", 0.0),
    },
    run=rescale,
)
NORMALIZE: Final = Step(
    name="normalize",
    doc="(number - mean) / std, for each channel.",
    forms={NUMBERS: NUMBERS, TILE_NUMBERS: TILE_NUMBERS},
    parameters={
        "mean": CallParameter("numbers", "one number, or one per channel in the order of the decoded mode"),
        "std": CallParameter("numbers", "one number, or one per channel; greater than 0"),
    },
    run=normalize,
    check=_check_std,
)
LAYOUT: Final = Step(
    name="layout",
    doc="Orders axes and channels as the graph wants them; without it, pixels are channels first.",
    forms={NUMBERS: ARRANGED, TILE_NUMBERS: ARRANGED},
    parameters={
        "axes": CallParameter("choice", "channels first or last", "chw", ("chw", "hwc")),
        "channels": CallParameter("choice", "reverse: RGB becomes BGR", "keep", ("keep", "reverse")),
    },
    run=layout,
)

"""The step ``tile``: a picture cut into a grid, row by row, with a small picture of the whole first or last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.picture import IMAGE, TILES, Picture, Pixels, fail, size_of
from genai_pipeline.preprocess.image.resize import RESAMPLE, resampled
from genai_pipeline.preprocess.program_steps import Step

MAX_TILES: Final = 1024


def tile(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """Cut a picture. Raises MediaError for one with fewer pixels than tiles, or with too many tiles."""
    (array,) = picture.arrays
    rows, columns = (_edges(picture, axis, params) for axis in (0, 1))
    grid = (len(rows) - 1, len(columns) - 1)
    if grid[0] * grid[1] > MAX_TILES:
        message = f"the picture would be cut into {grid[0]} x {grid[1]} tiles"
        raise fail(picture.param, message, f"at most {MAX_TILES} are made: resize it first")
    if grid == (1, 1) and params["single"] == "keep":
        return replace(picture, tiles=(0, 0), masks=None)
    tiles = [array[top:bottom, left:right] for top, bottom in pairwise(rows) for left, right in pairwise(columns)]
    if params["thumbnail"] != "none":
        tiles.insert(0 if params["thumbnail"] == "first" else len(tiles), _thumbnail(picture, params))
    return replace(picture, arrays=tuple(tiles), tiles=grid, masks=None)


def _edges(picture: Picture, axis: int, params: Mapping[str, Any]) -> list[int]:
    """Where tiles begin and the last one ends, along an axis."""
    length = picture.size[axis]
    if params["size"] is not None:
        return [*range(0, length, params["size"][axis]), length]
    count = params["grid"][axis]
    if count > length:
        raise fail(picture.param, f"{length} pixels cannot be cut into {count} tiles", "resize the picture first")
    return [part * length // count for part in range(count + 1)]


def _thumbnail(picture: Picture, params: Mapping[str, Any]) -> Pixels:
    whole = picture.decoded if params["thumbnail_of"] == "original" else picture.arrays[0]
    assert whole is not None
    size = params["thumbnail_size"] or params["size"]
    return resampled(
        whole, (size[0], size[1]) if size else _first_tile(picture, params), params["resample"], picture.param
    )


def _first_tile(picture: Picture, params: Mapping[str, Any]) -> tuple[int, int]:
    return size_of(picture.arrays[0])[0] // params["grid"][0], size_of(picture.arrays[0])[1] // params["grid"][1]


def _check(params: Mapping[str, Any]) -> Iterator[str]:
    if (params["size"] is None) == (params["grid"] is None):
        yield "it needs either size, of a tile, or grid, the number of rows and columns"
    if params["thumbnail"] == "none" and params["thumbnail_size"] is not None:
        yield "thumbnail_size has no use without a thumbnail: say whether it comes first or last"


TILE: Final = Step(
    name="tile",
    doc="Cuts the picture into tiles, row by row; those at the right and lower edge may be smaller.",
    forms={IMAGE: TILES},
    parameters={
        "size": CallParameter("integers", "[height, width] of a tile, in pixels", None, minimum=1, count=2),
        "grid": CallParameter("integers", "[rows, columns] of equal tiles", None, minimum=1, maximum=256, count=2),
        "single": CallParameter(
            "choice",
            "a picture no larger than one tile is cut like any other, or kept alone without thumbnail, as 0 x 0 tiles",
            "cut",
            ("cut", "keep"),
        ),
        "thumbnail": CallParameter("choice", "where the whole picture comes in", "none", ("none", "first", "last")),
        "thumbnail_size": CallParameter(
            "integers", "[height, width] of the thumbnail, in pixels; else that of a tile", None, minimum=1, count=2
        ),
        "thumbnail_of": CallParameter(
            "choice", "what the thumbnail is made of: what is cut, or the original", "cut", ("cut", "original")
        ),
        "resample": RESAMPLE,
    },
    run=tile,
    publishes=frozenset({"tiles"}),
    withdraws=frozenset({"mask"}),
    check=_check,
)

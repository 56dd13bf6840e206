"""The arithmetic of resizing: which size a picture gets, for each way of fitting it. All sizes are (height, width)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.preprocess.image.picture import Size


@dataclass(frozen=True, slots=True)
class Fitted:
    """The size a picture is resized to, and the box it was fitted into, where there is one to pad to."""

    size: Size
    canvas: Size | None = None


Fit = Callable[[Size, Mapping[str, Any]], Fitted]


def stretch(_: Size, params: Mapping[str, Any]) -> Fitted:
    """Exactly ``size``, whatever the sides were."""
    size = _pair(params["size"])
    return Fitted(size, size)


def contain(size: Size, params: Mapping[str, Any]) -> Fitted:
    """As large as fits into ``size`` in the same shape; the side that does not touch is rounded up."""
    return _inside(size, _pair(params["size"]))


def best(size: Size, params: Mapping[str, Any]) -> Fitted:
    """Into the one of ``sizes`` that keeps most pixels of the picture and, among those, wastes least (LLaVA-NeXT)."""
    return _inside(size, best_size(size, params["sizes"]))


def best_size(size: Size, sizes: Sequence[Sequence[int]]) -> Size:
    """The size of a list that keeps most of a picture; of equal ones that with least to pad, then the first."""
    height, width = size

    def merit(box: Size) -> tuple[int, int]:
        scale = min(box[1] / width, box[0] / height)
        kept = min(int(width * scale) * int(height * scale), width * height)
        return kept, kept - box[0] * box[1]

    return max(map(_pair, sizes), key=merit)


def shortest_edge(size: Size, params: Mapping[str, Any]) -> Fitted:
    """The shorter side becomes ``edge``; the other keeps the shape, cut to whole pixels."""
    edge, (short, long) = params["edge"], sorted(size)
    if not _changes(short, edge, params["only"]):
        return Fitted(_rounded(size, params))
    other = int(edge * long / short)
    return Fitted(_rounded((edge, other) if size[0] <= size[1] else (other, edge), params))


def longest_edge(size: Size, params: Mapping[str, Any]) -> Fitted:
    """The longer side becomes ``edge``; the other keeps the shape, cut to whole pixels."""
    edge, (height, width) = params["edge"], size
    fitted = _longer_side(size, edge) if _changes(max(height, width), edge, params["only"]) else size
    return Fitted(_rounded(fitted, params), (edge, edge))


def grow_to_multiple(size: Size, params: Mapping[str, Any]) -> Fitted:
    """The longer side grows to a whole ``multiple``, the other with it, then to a multiple too (Idefics3)."""
    multiple = params["multiple"]
    height, width = _longer_side(size, _up(max(size), multiple))
    return Fitted((_up(height, multiple), _up(width, multiple)))


def pixel_budget(size: Size, params: Mapping[str, Any]) -> Fitted:
    """Sides that are a ``multiple``, in all ``min_pixels`` to ``max_pixels``, close to the shape (Qwen2-VL)."""
    (height, width), multiple = size, params["multiple"]
    sides = [round(side / multiple) * multiple for side in size]
    if sides[0] * sides[1] > params["max_pixels"]:
        shrink = math.sqrt((height * width) / params["max_pixels"])
        sides = [max(multiple, math.floor(side / shrink / multiple) * multiple) for side in size]
    elif sides[0] * sides[1] < params["min_pixels"]:
        growth = math.sqrt(params["min_pixels"] / (height * width))
        sides = [math.ceil(side * growth / multiple) * multiple for side in size]
    return Fitted(_pair(sides))


def whole_pixel_budget(size: Size, params: Mapping[str, Any]) -> Fitted:
    """Like ``pixel_budget``, as onnxruntime-extensions counts: halves go up, sides are cut to whole pixels first."""
    (height, width), multiple = size, params["multiple"]
    sides = [max(multiple, math.floor(side / multiple + 0.5) * multiple) for side in size]
    if sides[0] * sides[1] > params["max_pixels"]:
        shrink = math.sqrt((height * width) / params["max_pixels"])
        sides = [max(multiple, math.floor(int(side / shrink) / multiple) * multiple) for side in size]
    elif sides[0] * sides[1] < params["min_pixels"]:
        growth = math.sqrt(params["min_pixels"] / (height * width))
        sides = [math.ceil(int(side * growth) / multiple) * multiple for side in size]
    return Fitted(_pair(sides))


_SCALE_STEP: Final = 1e-5  # where the search for a patch budget's scale ends
_SCALE_MAX: Final = 100.0


def patch_budget(size: Size, params: Mapping[str, Any]) -> Fitted:
    """The largest size of whole patches of ``patch`` pixels that has at most ``max_patches`` (SigLIP 2, NaFlex)."""
    patch = params["patch"]

    def patches(scale: float) -> Size:
        return _pair([max(1, math.ceil(side * scale / patch)) for side in size])

    low, high = _SCALE_STEP / 10, _SCALE_MAX
    while high - low >= _SCALE_STEP:
        middle = (low + high) / 2
        rows, columns = patches(middle)
        low, high = (middle, high) if rows * columns <= params["max_patches"] else (low, middle)
    rows, columns = patches(low)
    return Fitted((rows * patch, columns * patch))


def tile_budget(size: Size, params: Mapping[str, Any]) -> Fitted:
    """So many whole tiles of ``size`` as come closest to the shape (InternVL): the picture is stretched over them.

    Among grids of one shape, a larger one counts when the picture has more than half of its pixels.
    """
    (height, width), tile = size, _pair(params["size"])
    counts = range(1, params["max_tiles"] + 1)
    grids = [(r, c) for c in counts for r in counts if params["min_tiles"] <= r * c <= params["max_tiles"]]
    rows, columns, closest = 1, 1, math.inf
    for r, c in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        distance = abs(width / height - c / r)
        fills = height * width > 0.5 * tile[0] * tile[1] * r * c
        if distance < closest or (distance == closest and fills):
            rows, columns, closest = r, c, distance
    return Fitted((rows * tile[0], columns * tile[1]))


FITS: Final[Mapping[str, Fit]] = {
    "stretch": stretch,
    "contain": contain,
    "shortest_edge": shortest_edge,
    "longest_edge": longest_edge,
    "multiple": grow_to_multiple,
    "best": best,
    "pixel_budget": pixel_budget,
    "whole_pixel_budget": whole_pixel_budget,
    "patch_budget": patch_budget,
    "tile_budget": tile_budget,
}

_ROUND: Final[Mapping[str, Callable[[int, int], int]]] = {
    "down": lambda side, multiple: max(multiple, side // multiple * multiple),
    "nearest": lambda side, multiple: max(multiple, round(side / multiple) * multiple),
    "up": lambda side, multiple: _up(side, multiple),
}


def _up(side: int, multiple: int) -> int:
    return -(-side // multiple) * multiple


def _rounded(size: Size, params: Mapping[str, Any]) -> Size:
    """Sides brought to the multiple asked for; one that has vanished is one pixel, as in Idefics3."""
    multiple = params["multiple"] or 1
    return _pair([max(1, _ROUND[params["round"] or "down"](side, multiple)) for side in size])


def _changes(side: int, edge: int, only: str | None) -> bool:
    return not ((only == "enlarge" and side >= edge) or (only == "reduce" and side <= edge))


def _longer_side(size: Size, longest: int) -> Size:
    """The size whose longer side is ``longest``, the other cut to whole pixels; by the ratio, as processors have it."""
    ratio = size[1] / size[0]
    return (int(longest / ratio), longest) if size[1] >= size[0] else (longest, int(longest * ratio))


def _inside(size: Size, box: Size) -> Fitted:
    down, across = box[0] / size[0], box[1] / size[1]
    if across < down:
        return Fitted((min(math.ceil(size[0] * across), box[0]), box[1]), box)
    return Fitted((box[0], min(math.ceil(size[1] * down), box[1])), box)


def _pair(sides: Sequence[int]) -> Size:
    height, width = sides
    return int(height), int(width)

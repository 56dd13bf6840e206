"""Operations that move pixels: crops of quadrilaterals, turns, other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]
Floats = npt.NDArray[Any]
_WIDEST: Final = 200  # times the height: a crop that is wider is no line of text


def crop_quads(inputs: Values, params: Values, context: OpContext) -> Values:
    """Each quadrilateral as a picture of one height."""
    image, quads = inputs["image"][0].astype(np.float32), inputs["quads"].astype(np.float64)
    if quads.shape[1:] != (4, 2) or not np.isfinite(quads).all():
        raise RequestError(f"stage '{context.stage}' crops quadrilaterals of shape {list(quads.shape)}")
    return {"crops": [_crop(image, quad, params)[np.newaxis] for quad in quads]}


def rotate_if(inputs: Values, params: Values, context: OpContext) -> Values:
    """The picture turned if the label is the likeliest and likely enough."""
    image, scores, label = inputs["image"], inputs["scores"][0], params["label"]
    if label >= len(scores) or params["degrees"] not in (90, 180, 270):
        text = f"stage '{context.stage}' turns by {params['degrees']} degrees for label {label} of {len(scores)}"
        raise PackageError(text, hint="a label that there is, and 90, 180 or 270 degrees")
    if scores.argmax() != label or scores[label] < params["min_score"]:
        return {RESULT: image}
    return {RESULT: np.ascontiguousarray(np.rot90(image, params["degrees"] // 90, axes=(2, 3)))}


def restore_size(inputs: Values, params: Values, context: OpContext) -> Values:
    """The map at another size, row and column by themselves."""
    value = inputs["value"].astype(np.float32)
    sizes = [int(size) for size in inputs["original"].reshape(-1)]
    if len(sizes) != 2 or min(sizes) < 1:
        raise RequestError(f"stage '{context.stage}' brings a map to the size {sizes}", hint="height and width")
    for axis, size in zip((2, 3), sizes, strict=True):
        value = _resized(value, axis, size, params["resample"])
    return {RESULT: value}


def homography(source: Floats, target: Floats) -> Floats:
    """The 3x3 matrix that brings four points [4, 2] to four others, as eight linear equations."""
    rows = []
    for (x, y), (u, v) in zip(source, target, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y])
    solved = np.linalg.lstsq(np.array(rows, np.float64), target.reshape(-1), rcond=None)[0]
    return np.append(solved, 1.0).reshape(3, 3)


def _crop(image: Floats, quad: Floats, params: Values) -> Floats:
    """A quadrilateral as a picture [c, height, w]. Large ones are sampled at several points per pixel."""
    sides = np.hypot(*(np.roll(quad, -1, axis=0) - quad).T)  # top, right, bottom, left
    width, height = max(sides[0], sides[2], 1), max(sides[1], sides[3], 1)
    if height >= params["turn_from"] * width:
        quad, width, height = np.roll(quad, -1, axis=0), height, width  # its right edge becomes the top
    rows = params["height"]
    columns = min(max(round(rows * width / height), 1), _WIDEST * rows)
    points = max(1, round(height / rows))  # per pixel and direction
    matrix = homography(np.array([[0, 0], [1, 0], [1, 1], [0, 1]]), quad)
    v, u = np.meshgrid(_centres(rows * points), _centres(columns * points), indexing="ij")
    x, y, w = np.tensordot(matrix, np.stack([u, v, np.ones_like(u)]), 1)
    fine = _bilinear(image, x / w, y / w)
    found: Floats = fine.reshape(-1, rows, points, columns, points).mean((2, 4), dtype=np.float32)
    return found


def _centres(count: int) -> Floats:
    """The middles of ``count`` pixels that fill [0, 1]."""
    return (np.arange(count) + 0.5) / count


def _bilinear(image: Floats, x: Floats, y: Floats) -> Floats:
    """The picture [c, h, w] at points between pixel centres; beyond the border it goes on as at the border."""
    height, width = image.shape[1:]
    x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
    left, top = (np.minimum(np.floor(place), size) for place, size in ((x, width - 1), (y, height - 1)))
    dx, dy = (x - left).astype(np.float32), (y - top).astype(np.float32)
    j, i = left.astype(int), top.astype(int)
    right, below = np.minimum(j + 1, width - 1), np.minimum(i + 1, height - 1)
    upper = image[:, i, j] * (1 - dx) + image[:, i, right] * dx
    lower = image[:, below, j] * (1 - dx) + image[:, below, right] * dx
    found: Floats = upper * (1 - dy) + lower * dy
    return found


def _resized(value: Floats, axis: int, size: int, resample: str) -> Floats:
    """One axis at another size; pixel centres are at (i + 0.5) of the old size over the new one."""
    old = value.shape[axis]
    place = np.clip(_centres(size) * old - 0.5, 0, old - 1)
    if resample == "nearest":
        nearest: Floats = np.take(value, np.floor(_centres(size) * old).astype(int), axis)
        return nearest
    low = np.floor(place).astype(int)
    share = (place - low).astype(np.float32).reshape([-1 if i == axis else 1 for i in range(value.ndim)])
    high = np.minimum(low + 1, old - 1)
    found: Floats = np.take(value, low, axis) * (1 - share) + np.take(value, high, axis) * share
    return found

"""Operations that find things in pictures: boxes of a probability map, detections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.geometry import Area, areas, inside, least_rectangle, reading_order
from genai_pipeline.ops.labels import read_labels

Values = Mapping[str, Any]
Floats = npt.NDArray[np.floating[Any]]


def boxes_from_map(inputs: Values, params: Values, context: OpContext) -> Values:
    """Rectangles around the marked areas, in reading order, and their scores."""
    chances = inputs["map"]
    if chances.shape[:2] != (1, 1):
        raise RequestError(f"stage '{context.stage}' looks for boxes in a map of shape {list(chances.shape)}")
    chances = chances[0, 0]
    marked = sorted(areas(chances > params["threshold"]), key=lambda area: -area.pixels)[: params["most"]]
    found = [box for area in marked for box in _box(area, chances, params)]
    corners = np.array([box for box, _ in found], np.float64).reshape(-1, 4, 2)
    scores = np.array([score for _, score in found], np.float32)
    scale = _scale(inputs["original"], chances.shape)
    limits = np.array(chances.shape[::-1]) * scale
    corners = np.clip((corners + 0.5) * scale - 0.5, 0, limits - 1)
    order = reading_order(corners)
    return {"boxes": corners[order].astype(np.float32), "scores": scores[order]}


def detections(inputs: Values, params: Values, context: OpContext) -> Values:
    """The best boxes above a score, those left out that overlap a better one with their label."""
    boxes, scores = _corners(inputs["boxes"][0], params["form"]), inputs["scores"][0]
    if len(boxes) != len(scores):
        raise RequestError(f"stage '{context.stage}' has {len(boxes)} boxes and scores of {len(scores)}")
    labels = read_labels(inputs["labels"], scores.shape[1], context)
    if inputs["original"] is not None:
        if params["size"] is None:
            raise PackageError(f"stage '{context.stage}' needs the parameter 'size' to scale boxes to their picture")
        boxes = boxes * np.tile(inputs["original"].reshape(-1)[::-1] / np.array(params["size"][::-1]), 2)
    best, label = scores.max(1), scores.argmax(1)
    kept: list[int] = []
    for index in np.argsort(-best, kind="stable"):
        if best[index] < params["min_score"] or len(kept) == params["most"]:
            break
        rivals = [other for other in kept if label[other] == label[index]]
        if not rivals or _overlap(boxes[index], boxes[rivals]).max() < params["overlap"]:
            kept.append(int(index))
    items = [
        {
            "label": labels[label[index]] if labels else int(label[index]),
            "score": float(best[index]),
            "box": [float(number) for number in boxes[index]],
        }
        for index in kept
    ]
    return {"items": items, "boxes": boxes[kept].astype(np.float32).reshape(-1, 4)}


def _box(area: Area, chances: Floats, params: Values) -> Iterator[tuple[Floats, float]]:
    """The grown rectangle of an area and its score, if it is large and likely enough."""
    rectangle = least_rectangle(area.border)
    if min(rectangle.width, rectangle.height) < params["min_size"]:
        return
    rows, columns, within = inside(rectangle.corners(), chances.shape)
    score = float(chances[rows, columns][within].mean()) if within.any() else 0.0
    if score < params["min_score"]:
        return
    around = 2 * (rectangle.width + rectangle.height)
    yield rectangle.grown(rectangle.width * rectangle.height * params["grow"] / around).corners(), score


def _scale(original: Any, size: tuple[int, ...]) -> Floats:
    """What x and y are multiplied by from pixels of the map to pixels of the picture."""
    if original is None:
        return np.ones(2)
    height, width = original.reshape(-1)
    return np.array([width / size[1], height / size[0]])


def _corners(boxes: Floats, form: str) -> Floats:
    """Boxes [n, 4] as left, top, right, bottom."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if form == "corners":
        return boxes
    start = first if form == "corner_size" else first - second / 2
    return np.concatenate([start, start + second], 1)


def _overlap(box: Floats, others: Floats) -> Floats:
    """Intersection over union of a box and others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=1)
    sizes = np.prod(others[:, 2:] - others[:, :2], axis=1) + np.prod(box[2:] - box[:2])
    union = np.maximum(sizes - shared, 1e-12)
    found: Floats = shared / union
    return found

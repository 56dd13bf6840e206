"""Operations on pictures: finding, cutting out and turning what models have marked. Points are (x, y) in pixels."""

from __future__ import annotations

from typing import Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.metadata.operation_spec import RESULT, OperationInput, OperationOutput, table
from genai_pipeline.metadata.operation_spec import OperationSpec as Op
from genai_pipeline.metadata.operation_tables.vectors import LABELS

_IMAGE: Final = OperationInput("image", "a picture [1, c, h, w]", rank=4)
_ORIGINAL: Final = OperationInput(
    "original", "height and width [2] of the picture before it was resized", None, optional=True, numbers="integer"
)

SPECS: Final = table(
    Op(
        "boxes_from_map",
        "Rectangles around what a probability map marks, e.g. lines of text: each connected area of pixels above the "
        "threshold gives the rectangle, at any angle, of the least area around it, grown by area * grow / perimeter "
        "pixels on every side, as areas of such models are shrunk (Differentiable Binarization, arXiv:1911.08947).",
        (OperationInput("map", "probabilities [1, 1, h, w], or [1, h, w]", rank=4), _ORIGINAL),
        (
            OperationOutput(
                "boxes",
                "four corners of each [n, 4, 2], clockwise from the top left one; in reading order: lines from top to "
                "bottom, and in a line from left to right; in pixels of the map, or of ``original``",
                dtype="float32",
                rank=3,
            ),
            OperationOutput("scores", "mean probability inside each, before it was grown [n]", dtype="float32", rank=1),
        ),
        {
            "threshold": CallParameter("number", "probability above which a pixel belongs to an area", 0.3),
            "min_score": CallParameter("number", "boxes with a lower score are dropped", 0.5),
            "grow": CallParameter("number", "how much boxes grow; 0: not at all", 1.6, minimum=0),
            "min_size": CallParameter("number", "pixels; boxes with a shorter side are dropped", 3, minimum=0),
            "most": CallParameter("integer", "most areas that are looked at, the largest first", 1000, minimum=1),
        },
        runs="offload",
        in_body=False,
    ),
    Op(
        "crop_quads",
        "Cuts quadrilaterals out of a picture and stretches each to a rectangle of one height.",
        (_IMAGE, OperationInput("quads", "four corners of each [n, 4, 2], clockwise from the top left one", rank=3)),
        (OperationOutput("crops", "a list of n pictures [1, c, height, w], float32", "list"),),
        {
            "height": CallParameter("integer", "pixels of each crop; its width keeps its proportions", 48, minimum=1),
            "turn_from": CallParameter(
                "number", "quadrilaterals this many times as high as wide are turned left by 90 degrees", 1.5, minimum=1
            ),
        },
        runs="offload",
        in_body=False,
    ),
    Op(
        "rotate_if",
        "Turns a picture if a classifier says so.",
        (_IMAGE, OperationInput("scores", "probabilities of the labels [1, n]", rank=2, numbers="float")),
        (OperationOutput(RESULT, "the picture, turned or as it is", like="image"),),
        {
            "label": CallParameter("integer", "the label that means: turn", minimum=0),
            "min_score": CallParameter("number", "its least probability", 0.5),
            "degrees": CallParameter("integer", "by how much, counterclockwise: 90, 180 or 270", 180, minimum=90),
        },
        in_body=False,
    ),
    Op(
        "detections",
        "What a detector found: boxes above a score, of those that overlap and have one label the best one.",
        (
            OperationInput("boxes", "boxes [1, n, 4]", rank=3),
            OperationInput("scores", "probabilities of each box and label [1, n, k]", rank=3, numbers="float"),
            LABELS,
            _ORIGINAL,
        ),
        (
            OperationOutput("items", "``{label, score, box: [left, top, right, bottom]}``, the best first", "list"),
            OperationOutput("boxes", "left, top, right, bottom of these [m, 4]", dtype="float32", rank=2),
        ),
        {
            "form": CallParameter(
                "choice",
                "what the four numbers are: two corners, a corner and the size, or the centre and the size",
                "corners",
                ("corners", "corner_size", "centre_size"),
            ),
            "min_score": CallParameter("number", "boxes with a lower score are dropped", 0.25),
            "overlap": CallParameter("number", "intersection over union from which boxes overlap", 0.5, minimum=0),
            "most": CallParameter("integer", "most boxes", 100, minimum=1),
            "size": CallParameter(
                "numbers", "height and width that boxes count in, for ``original``; 1, 1 for fractions", None, count=2
            ),
        },
        runs="offload",
        in_body=False,
    ),
    Op(
        "restore_size",
        "Brings a map back to the size of the picture it was made of.",
        (
            OperationInput("value", "a map [1, c, h, w]", rank=4),
            OperationInput("original", "height and width [2] to bring it to", numbers="integer"),
        ),
        (OperationOutput(RESULT, "the map [1, c, height, width], float32", dtype="float32", rank=4),),
        {
            "resample": CallParameter(
                "choice", "``bilinear`` between pixel centres, or ``nearest``", "bilinear", ("bilinear", "nearest")
            )
        },
        runs="offload",
        in_body=False,
    ),
)

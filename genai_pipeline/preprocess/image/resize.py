"""The step ``resize``: one of many ways to find the new size, then one resampling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.picture import IMAGE, TILES, Picture, Pixels, Size, check_work, fail, size_of
from genai_pipeline.preprocess.image.sizes import FITS
from genai_pipeline.preprocess.program_steps import Step
from genai_pipeline.problems import one_of

RESAMPLE: Final = CallParameter(
    "choice",
    "filter of the resampling",
    "bilinear",
    ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
)
# Fit -> the parameters it must have, and those it may have.
TAKES: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    fit: (frozenset(must.split()), frozenset(may.split()))
    for fit, must, may in (
        ("stretch", "size", ""),
        ("contain", "size", ""),
        ("shortest_edge", "edge", "multiple round only"),
        ("longest_edge", "edge", "multiple round only"),
        ("multiple", "multiple", ""),
        ("best", "sizes", ""),
        ("pixel_budget", "multiple min_pixels max_pixels", "max_ratio"),
        ("whole_pixel_budget", "multiple min_pixels max_pixels", "max_ratio"),
        ("patch_budget", "patch max_patches", ""),
        ("tile_budget", "size min_tiles max_tiles", ""),
    )
}
_ALWAYS: Final = frozenset({"fit", "resample", "passes"})


def resize(picture: Picture, params: Mapping[str, Any]) -> Picture:
    """Resample every array of a picture. Raises MediaError for a shape too extreme to be resized so."""
    fitted = [FITS[params["fit"]](size_of(array), params) for array in picture.arrays]
    for array in picture.arrays:
        _check_ratio(size_of(array), params["max_ratio"], picture.param)
    height, width = sum(new.size[0] for new in fitted), max(new.size[1] for new in fitted)
    check_work(picture.param, height, width, "the resized picture")
    arrays = tuple(
        _in_passes(array, new.size, params, picture.param) for array, new in zip(picture.arrays, fitted, strict=True)
    )
    scale = picture.scale or (1.0, 1.0)
    if picture.tiles is None:
        new = fitted[0].size
        scale = (new[0] / picture.original[0], new[1] / picture.original[1])
    return replace(picture, arrays=arrays, canvas=fitted[0].canvas, scale=scale, masks=None)


def _in_passes(pixels: Pixels, size: Size, params: Mapping[str, Any], param: str | None) -> Pixels:
    """Pixels brought to a size; with ``rows_first`` each row before each column, whichever takes less work."""
    if params["passes"] == "rows_first":
        pixels = resampled(pixels, (pixels.shape[0], size[1]), params["resample"], param)
    return resampled(pixels, size, params["resample"], param)


def resampled(pixels: Pixels, size: Size, resample: str, param: str | None) -> Pixels:
    """Pixels brought to a size. Raises MediaError where the result, or the pass over the rows, would be too large."""
    from genai_pipeline.preprocess.image import pillow

    check_work(param, max(size[0], pixels.shape[0]), size[1], "the resized picture")
    return pillow.resized(pixels, size, resample)


def _check_ratio(size: Size, max_ratio: float | None, param: str | None) -> None:
    if max_ratio is not None and max(size) > max_ratio * min(size):
        raise fail(
            param, f"the picture is {size[0]} x {size[1]}", f"its sides may differ by {max_ratio:g} times at most"
        )


def _check(params: Mapping[str, Any]) -> Iterator[str]:
    fit = params["fit"]
    must, may = TAKES[fit]
    given = {name for name, value in params.items() if value is not None} - _ALWAYS
    for name in sorted(must - given):
        yield f"fit {fit} needs the parameter '{name}'"
    for name in sorted(given - must - may):
        yield f"fit {fit} has no use for '{name}'; it takes {one_of(must | may)}"
    if params["round"] is not None and params["multiple"] is None:
        yield "'round' says how a 'multiple' is reached, and there is none"
    if params["sizes"] is not None and not _are_sizes(params["sizes"]):
        yield f"sizes is {params['sizes']!r}, and must be a list of [height, width]"
    budget = [params["min_pixels"], params["max_pixels"]]
    if all(isinstance(bound, int) for bound in budget) and budget[0] > budget[1]:
        yield "min_pixels is more than max_pixels"


def _are_sizes(sizes: Any) -> bool:
    def is_size(item: Any) -> bool:
        return (
            isinstance(item, Sequence)
            and len(item) == 2
            and all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in item)
        )

    return isinstance(sizes, Sequence) and bool(sizes) and all(map(is_size, sizes))


RESIZE: Final = Step(
    name="resize",
    doc="Brings the picture, or each tile, to another size.",
    forms={IMAGE: IMAGE, TILES: TILES},
    parameters={
        "fit": CallParameter("choice", "how the new size is found", "stretch", tuple(FITS)),
        "resample": RESAMPLE,
        "passes": CallParameter(
            "choice", "rows and columns in the order of less work, or rows first", "any", ("any", "rows_first")
        ),
        "size": CallParameter(
            "integers", "[height, width] to become, to fit into, or of one tile, in pixels", None, minimum=1, count=2
        ),
        "edge": CallParameter("integer", "what the shortest or longest edge becomes, in pixels", None, minimum=1),
        "sizes": CallParameter("any", "list of [height, width] of which the best one counts", None),
        "multiple": CallParameter("integer", "sides become whole multiples of it, in pixels", None, minimum=1),
        "round": CallParameter("choice", "how edges reach the multiple", None, ("down", "nearest", "up")),
        "only": CallParameter("choice", "edges change in one direction only", None, ("enlarge", "reduce")),
        "min_pixels": CallParameter("integer", "least height times width", None, minimum=1),
        "max_pixels": CallParameter("integer", "most height times width", None, minimum=1),
        "max_ratio": CallParameter("number", "sides that differ more are refused", None, minimum=1),
        "patch": CallParameter("integer", "side of a patch, in pixels", None, minimum=1),
        "max_patches": CallParameter("integer", "most patches", None, minimum=1),
        "min_tiles": CallParameter("integer", "least tiles", None, minimum=1),
        "max_tiles": CallParameter("integer", "most tiles", None, minimum=1, maximum=256),
    },
    run=resize,
    publishes=frozenset({"scale"}),
    withdraws=frozenset({"mask"}),
    check=_check,
)

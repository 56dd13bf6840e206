"""The step ``patchify``: a picture as rows of patches, for encoders that take any size.

Patches that an encoder merges to one feature are neighbours in the list. With m patches merged along a side, rows run
over (block row, block column, row in the block, column in the block); a picture counts as ``temporal`` equal frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from genai_pipeline.metadata.call_parameters import CallParameter
from genai_pipeline.preprocess.image.numbers import fields
from genai_pipeline.preprocess.image.picture import NUMBERS, PATCHES, Array, Picture, Prepared, check_work, fail
from genai_pipeline.preprocess.program_steps import Step


def patchify(picture: Picture, params: Mapping[str, Any]) -> Prepared:
    """Rows of patches, their grid, mask and number of tokens. Raises MediaError for sides that are no whole blocks."""
    patch, merge = params["patch"], params["merge"]
    height, width = picture.size
    if height % (patch * merge) or width % (patch * merge):
        message = f"a picture of {height} x {width} pixels has no whole blocks of {patch * merge} pixels"
        raise fail(picture.param, message, f"resize or pad it to a multiple of {patch * merge}")
    grid = (height // patch, width // patch)
    count = grid[0] * grid[1]
    array = picture.arrays[0] if params["channels"] == "keep" else picture.arrays[0][..., ::-1]
    rows = _patches(array, patch, merge, params["temporal"], params["order"])
    mask = np.ones(count, np.int64)
    if params["length"] is not None:
        if count > params["length"]:
            message = f"a picture of {height} x {width} pixels has {count} patches"
            raise fail(picture.param, message, f"at most {params['length']} are taken: resize it with a patch_budget")
        check_work(picture.param, params["length"], rows.shape[1], "the list of patches")
        rows = np.pad(rows, ((0, params["length"] - count), (0, 0)))
        mask = np.pad(mask, (0, params["length"] - count))
    published = fields(picture)
    published["grid"] = np.asarray((1, *grid), np.int64)
    published["mask"] = mask
    published["tokens"] = count // merge**2
    return Prepared(rows, published)


def _patches(array: Array, patch: int, merge: int, temporal: int, order: str) -> Array:
    """[rows of patches, values of a patch], of an array [h, w, c]."""
    height, width, channels = array.shape
    block = patch * merge
    # block row, row in the block, line of the patch, block column, column in the block, column of the patch, channel
    split = array.reshape(height // block, merge, patch, width // block, merge, patch, channels)
    rows = (height // patch) * (width // patch)
    values = patch * patch
    if order == "channels_last":
        frame = np.ascontiguousarray(split.transpose(0, 3, 1, 4, 2, 5, 6)).reshape(rows, 1, 1, values * channels)
    else:
        frame = np.ascontiguousarray(split.transpose(0, 3, 1, 4, 6, 2, 5)).reshape(rows, channels, 1, values)
    return np.repeat(frame, temporal, axis=2).reshape(rows, -1)


PATCHIFY: Final = Step(
    name="patchify",
    doc="Cuts the picture into rows of patches, in the order in which an encoder merges them.",
    forms={NUMBERS: PATCHES},
    parameters={
        "patch": CallParameter("integer", "side of a patch, in pixels", minimum=1),
        "merge": CallParameter("integer", "patches along a side that become one feature", 1, minimum=1),
        "temporal": CallParameter("integer", "frames of a patch, all of them this picture", 1, minimum=1, maximum=16),
        "order": CallParameter(
            "choice",
            "values of a patch: channel, frame, line, column; or frame, line, column, channel",
            "channels_first",
            ("channels_first", "channels_last"),
        ),
        "channels": CallParameter("choice", "reverse: RGB becomes BGR", "keep", ("keep", "reverse")),
        "length": CallParameter("integer", "rows to fill up to, with zeros", None, minimum=1),
    },
    run=patchify,
    publishes=frozenset({"grid", "mask", "tokens"}),
    withdraws=frozenset({"mask"}),
)

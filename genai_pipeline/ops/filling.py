"""Operations that make numbers where there were none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def fill(inputs: Values, params: Values, context: OpContext) -> Values:
    """An array of one number."""
    return {RESULT: np.full(tuple(params["shape"]), params["value"], np.float32)}


def pad(inputs: Values, params: Values, context: OpContext) -> Values:
    """``value``, lengthened along ``axis``."""
    value, axis = inputs["value"], params["axis"]
    if not -value.ndim <= axis < value.ndim:
        raise RequestError(f"stage '{context.stage}' pads axis {axis} of a value with {value.ndim} axes")
    missing = _missing(value.shape[axis], params["least"], params["multiple"])
    if not missing:
        return {RESULT: value}
    widths = [(0, 0)] * value.ndim
    widths[axis] = (missing, 0) if params["side"] == "before" else (0, missing)
    return {RESULT: np.pad(value, widths, constant_values=params["value"])}


def _missing(size: int, least: int, multiple: int) -> int:
    wanted = max(size, least)
    return -(-wanted // multiple) * multiple - size

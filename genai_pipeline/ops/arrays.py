"""Operations on the shapes of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def concat(inputs: Values, params: Values, context: OpContext) -> Values:
    """The arrays one behind the other along ``axis``."""
    arrays, axis = inputs["values"], params["axis"]
    if len({array.ndim for array in arrays}) > 1:
        shapes = ", ".join(str(list(array.shape)) for array in arrays)
        raise RequestError(f"stage '{context.stage}' joins arrays of different ranks: {shapes}")
    return {RESULT: np.concatenate(arrays, axis)}


def take(inputs: Values, params: Values, context: OpContext) -> Values:
    """``value`` at ``index`` along ``axis``."""
    value, index, axis = inputs["value"], inputs["index"], params["axis"]
    size = value.shape[axis]
    if index.size and not (-size <= index.min() and index.max() < size):
        hint = f"indices go from 0 to {size - 1}"
        wrong = index.max() if index.max() >= size else index.min()
        raise RequestError(f"stage '{context.stage}' takes number {wrong} of {size}", hint=hint)
    return {RESULT: np.take(value, index, axis)}


def affine(inputs: Values, params: Values, context: OpContext) -> Values:
    """value * scale + offset."""
    value = as_floats(inputs["value"])
    return {RESULT: value * value.dtype.type(params["scale"]) + value.dtype.type(params["offset"])}


def as_floats(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Floats as they are, other numbers as float32."""
    return value if value.dtype.kind == "f" else value.astype(np.float32)

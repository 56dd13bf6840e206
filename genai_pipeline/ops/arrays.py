"""Operations on the shapes of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]
Array = npt.NDArray[Any]
MOST: Final = 1 << 28  # numbers of an array that is made of nothing: 1 GiB of float32


def concat(inputs: Values, params: Values, context: OpContext) -> Values:
    """The arrays one behind the other along ``axis``."""
    return {RESULT: _joined(inputs["values"], params["axis"], context)}


def stack(inputs: Values, params: Values, context: OpContext) -> Values:
    """The arrays side by side along a new axis."""
    arrays = inputs["values"]
    if not arrays or len({array.shape for array in arrays}) > 1:
        raise RequestError(f"stage '{context.stage}' stacks arrays of different shapes: {_shapes(arrays)}")
    axis_of(arrays[0].ndim + 1, params["axis"], context)
    return {RESULT: np.stack(arrays, params["axis"])}


def split(inputs: Values, params: Values, context: OpContext) -> Values:
    """The pieces of an axis, by ``sizes`` or as ``parts`` of one size."""
    value, sizes, parts = inputs["value"], params["sizes"], params["parts"]
    axis = axis_of(value.ndim, params["axis"], context)
    if (sizes is None) == (parts is None):
        raise RequestError(f"stage '{context.stage}' splits by sizes or into parts: give exactly one of them")
    total = value.shape[axis]
    wanted = sizes if sizes is not None else [total // parts] * parts
    if sum(wanted) != total:
        into = f"sizes {wanted}" if sizes is not None else f"{parts} equal parts"
        raise RequestError(f"stage '{context.stage}' cannot split {total} rows into {into}")
    return {RESULT: np.split(value, np.cumsum(wanted)[:-1], axis)}


def slice_(inputs: Values, params: Values, context: OpContext) -> Values:
    """The range [start, stop) of an axis."""
    value = inputs["value"]
    axis = axis_of(value.ndim, params["axis"], context)
    size = value.shape[axis]
    start, stop = params["start"], size if params["stop"] is None else params["stop"]
    first, last = (place + size if place < 0 else place for place in (start, stop))
    if not 0 <= first <= last <= size:
        raise RequestError(f"stage '{context.stage}' slices [{start}, {stop}) of an axis of {size}")
    return {RESULT: value[(*[np.s_[:]] * axis, np.s_[first : last : params["step"]])]}


def take(inputs: Values, params: Values, context: OpContext) -> Values:
    """``value`` at ``index`` along ``axis``."""
    value, index = inputs["value"], inputs["index"]
    axis = axis_of(value.ndim, params["axis"], context)
    size = value.shape[axis]
    if index.size and not (-size <= index.min() and index.max() < size):
        wrong = index.max() if index.max() >= size else index.min()
        hint = f"indices go from 0 to {size - 1}"
        raise RequestError(f"stage '{context.stage}' takes number {wrong} of {size}", hint=hint)
    return {RESULT: np.take(value, index, axis)}


def reshape(inputs: Values, params: Values, context: OpContext) -> Values:
    """The numbers in row-major order under another shape."""
    value, shape = inputs["value"], params["shape"]
    known = int(np.prod([size for size in shape if size >= 0], dtype=np.int64))
    free = shape.count(-1)
    fits = known == value.size if free == 0 else free == 1 and known > 0 and value.size % known == 0
    if not fits:
        raise RequestError(f"stage '{context.stage}' cannot give shape {shape} to {list(value.shape)}")
    return {RESULT: value.reshape(shape)}


def transpose(inputs: Values, params: Values, context: OpContext) -> Values:
    """The axes in another order."""
    value, order = inputs["value"], params["order"]
    if sorted(order) != list(range(value.ndim)):
        raise RequestError(f"stage '{context.stage}' orders {value.ndim} axes by {order}")
    return {RESULT: value.transpose(order)}


def pad(inputs: Values, params: Values, context: OpContext) -> Values:
    """The axis with ``before`` and ``after`` more, or filled up to the size ``to``."""
    value = inputs["value"]
    axis = axis_of(value.ndim, params["axis"], context)
    size, border = value.shape[axis] + params["before"], params["after"]
    if params["to"] is not None:
        border = params["to"] - size
    if border < 0:
        raise RequestError(f"stage '{context.stage}' pads an axis of {size} to {params['to']}", hint="cut it first")
    widths = [(0, 0)] * value.ndim
    widths[axis] = (params["before"], border)
    return {RESULT: np.pad(value, widths, constant_values=params["value"])}


def sum_(inputs: Values, params: Values, context: OpContext) -> Values:
    """The sum along ``axis``, which keeps size 1, or of the arrays number by number."""
    arrays, axis = inputs["values"], params["axis"]
    if axis is not None:
        joined = _joined(arrays, axis, context)
        return {RESULT: joined.sum(axis, keepdims=True, dtype=joined.dtype)}
    if not arrays or len({array.shape for array in arrays}) > 1:
        raise RequestError(f"stage '{context.stage}' adds arrays of different shapes: {_shapes(arrays)}")
    return {RESULT: np.add.reduce(arrays)}


def affine(inputs: Values, params: Values, context: OpContext) -> Values:
    """value * scale + offset."""
    value = as_floats(inputs["value"])
    return {RESULT: value * value.dtype.type(params["scale"]) + value.dtype.type(params["offset"])}


def fill(inputs: Values, params: Values, context: OpContext) -> Values:
    """An array of one number."""
    if math.prod(params["shape"]) > MOST:
        raise RequestError(
            f"stage '{context.stage}' fills an array of {params['shape']}", hint=f"at most {MOST} numbers"
        )
    return {RESULT: np.full(params["shape"], params["value"], params["dtype"])}


def repeat_rows(inputs: Values, params: Values, context: OpContext) -> Values:
    """Each row ``counts`` times."""
    value, counts = inputs["value"], inputs["counts"].reshape(-1)
    axis = axis_of(value.ndim, params["axis"], context)
    if len(counts) not in (1, value.shape[axis]) or (counts < 0).any():
        message = f"stage '{context.stage}' repeats {value.shape[axis]} rows by {len(counts)} counts"
        raise RequestError(message, hint="one count of 0 or more for each row, or one for all")
    return {RESULT: np.repeat(value, counts, axis)}


def last_rows(inputs: Values, params: Values, context: OpContext) -> Values:
    """The last ``count`` rows of those that count."""
    value, count = inputs["value"], params["count"]
    axis = axis_of(value.ndim, params["axis"], context)
    length = value.shape[axis] if inputs["length"] is None else int(inputs["length"].reshape(-1)[0])
    if not count <= length <= value.shape[axis]:
        raise RequestError(f"stage '{context.stage}' takes the last {count} of {length} rows")
    return {RESULT: value[(*[np.s_[:]] * axis, np.s_[length - count : length])]}


def coalesce(inputs: Values, params: Values, context: OpContext) -> Values:
    """The first value that is there."""
    return {RESULT: next(iter(inputs["values"] or ()), None)}


def as_floats(value: Array) -> Array:
    """Floats as they are, other numbers as float32."""
    return value if value.dtype.kind == "f" else value.astype(np.float32)


def axis_of(rank: int, axis: int, context: OpContext) -> int:
    """An axis counted from the first. Raises RequestError where there is no such axis."""
    if not -rank <= axis < rank:
        raise RequestError(f"stage '{context.stage}' uses axis {axis} of an array with {rank} axes")
    return axis % rank


def _joined(arrays: Sequence[Array], axis: int, context: OpContext) -> Array:
    first = axis_of(arrays[0].ndim, axis, context) if arrays else 0
    others = {array.shape[:first] + array.shape[first + 1 :] for array in arrays}
    if len(others) != 1 or len({array.ndim for array in arrays}) != 1:
        raise RequestError(f"stage '{context.stage}' joins arrays that do not fit on axis {axis}: {_shapes(arrays)}")
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, first)


def _shapes(arrays: Sequence[Array]) -> str:
    return ", ".join(str(list(array.shape)) for array in arrays) or "none at all"

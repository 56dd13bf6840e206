"""Inputs of modality tensor, vector and items: the values a request gives, checked against the declared type and shape.

A ``tensor`` may have any rank, a ``vector`` has one axis; both become arrays. ``items`` is a list of anything, and an
array only where a type is declared. Numbers are taken into the declared type where that keeps their kind: whole
numbers may become floating-point ones, and floating-point ones may be rounded; nothing else is converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec
from genai_pipeline.types import numpy_dtype

TENSORS: Final = frozenset({"tensor", "vector", "items"})


def read_values(spec: InputSpec, given: Any, where: str) -> Any:
    """The values of one item. Raises RequestError naming ``where``."""
    dtype, shape = spec.options.get("dtype"), spec.options.get("shape")
    if spec.modality == "items":
        given = _listed(given, where)
        if dtype is None:
            _check_shape(shape[:1] if shape else None, (len(given),), where)
            return given
    array = _array(given, where)
    if dtype is not None:
        array = _typed(array, dtype, where)
    if spec.modality == "vector" and array.ndim != 1:
        raise RequestError(f"{where} must have one axis, not the shape {_written(array.shape)}", param=where)
    _check_shape(shape, array.shape, where)
    return array


def is_many(spec: InputSpec, given: Any) -> bool:
    """Whether what an input with a list is given is several items, and not one array or vector."""
    if not isinstance(given, list | tuple):
        return False
    if spec.modality == "tensor":
        return True
    return all(isinstance(item, list | tuple | np.ndarray) for item in given)


def _listed(given: Any, where: str) -> list[Any]:
    if isinstance(given, np.ndarray):
        return list(given)
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Sequence):
        raise RequestError(f"{where} must be a list, not {type(given).__name__}", param=where)
    return list(given)


def _array(given: Any, where: str) -> NDArray[Any]:
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{where} is no array: {error}", param=where) from error
    if array.dtype.kind not in "biufUV" or (array.dtype.kind == "V" and array.dtype.names is not None):
        raise RequestError(f"{where} must be numbers or texts, not {type(given).__name__}", param=where)
    if _mixes_booleans(given, array):
        raise RequestError(f"{where} mixes booleans and numbers", param=where)
    return array


def _mixes_booleans(given: Any, array: NDArray[Any]) -> bool:
    """numpy makes true a 1 beside numbers, and numbers texts beside texts."""
    if isinstance(given, list | tuple):
        return any(_mixes_booleans(item, array) for item in given)
    if isinstance(given, np.ndarray | np.generic):
        return False
    return isinstance(given, bool) != (array.dtype.kind == "b") or isinstance(given, str) != (array.dtype.kind == "U")


def _typed(array: NDArray[Any], name: str, where: str) -> NDArray[Any]:
    if name == "string":
        if array.dtype.kind != "U" and array.size:
            raise RequestError(f"{where} must be texts, not {array.dtype}", param=where)
        return array.astype(object)
    dtype = numpy_dtype(name)
    if array.dtype == dtype:
        return array
    if not array.size:
        return array.astype(dtype)
    if not _same_kind(array.dtype, dtype):
        raise RequestError(f"{where} must be {name}, not {array.dtype}", param=where)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
    if not _kept(array, cast):
        raise RequestError(f"{where} has numbers that {name} cannot hold", param=where)
    return cast


def _same_kind(given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Whether numbers may be taken into a type: whole ones into any, others into floating-point ones."""
    if given.kind == "b" or wanted.kind == "b" or given.kind == "U":
        return False
    return given.kind in "iu" or wanted.kind not in "iu"


def _kept(given: NDArray[Any], cast: NDArray[Any]) -> bool:
    if cast.dtype.kind in "iu":
        return bool(np.all(cast == given) and np.all((cast < 0) == (given < 0)))
    return bool(np.all(np.isfinite(cast.astype(np.float64)) | ~np.isfinite(given.astype(np.float64))))


def _check_shape(declared: Sequence[int | str] | None, shape: tuple[int, ...], where: str) -> None:
    """Whole numbers are sizes; a name stands for one size, the same wherever it is written."""
    if declared is None:
        return
    sizes: dict[str, int] = {}
    fits = len(declared) == len(shape) and all(
        size == dim if isinstance(dim, int) else sizes.setdefault(dim, size) == size
        for dim, size in zip(declared, shape, strict=True)
    )
    if not fits:
        message = f"{where} must have the shape {_written(declared)}, not {_written(shape)}"
        raise RequestError(message, param=where)


def _written(shape: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, shape))}]"

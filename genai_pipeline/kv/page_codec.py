"""How pages look outside the arenas: as the graphs have them, or as 8-bit integers, which is not exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.kv.geometry import TensorLayout


@dataclass(frozen=True, slots=True)
class Column:
    """One array of a stored page: [16, *shape]."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token."""
        return math.prod(self.shape) * self.dtype.itemsize


class PageCodec(Protocol):
    """Turns the growing tensors of a state, [tokens, *outer, *inner] each, into the columns that are stored."""

    @property
    def name(self) -> str:
        """What people call the encoding."""

    @property
    def exact(self) -> bool:
        """Whether decoding gives back every bit."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """What is stored per page."""

    def encode(self, tensors: Sequence[NDArray[Any]]) -> list[NDArray[Any]] | None:
        """The columns of some tokens; None where the encoding has no form for their values."""

    def decode(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The tensors of some tokens; views of the columns where that is possible."""


class ExactCodec:
    """Stores tensors as they are."""

    name = "as computed"
    exact = True

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self.columns = tuple(Column(layout.dtype, (*layout.outer, *layout.inner)) for layout in layouts)

    def encode(self, tensors: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The tensors themselves."""
        return list(tensors)

    def decode(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The tensors themselves."""
        return list(columns)


class Int8Codec:
    """Stores each vector of a token and head as 8-bit integers and one float32 scale: x ~ code * max|x| / 127.

    Off by at most half a scale per value, plus what the tensor's own dtype rounds. Tensors that are not floating point
    stay as they are. Vectors with an infinity or a NaN have no such form.
    """

    name = "int8 per token and head"
    exact = False

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._dtypes = [layout.dtype for layout in layouts]
        self._quantised = [_is_float(layout.dtype) and bool(layout.outer or layout.inner) for layout in layouts]
        columns: list[Column] = []
        for layout, quantised in zip(layouts, self._quantised, strict=True):
            shape = (*layout.outer, *layout.inner)
            if quantised:
                columns += [Column(np.dtype(np.int8), shape), Column(np.dtype(np.float32), (*shape[:-1], 1))]
            else:
                columns.append(Column(layout.dtype, shape))
        self.columns = tuple(columns)

    def encode(self, tensors: Sequence[NDArray[Any]]) -> list[NDArray[Any]] | None:
        """Codes and scales of each tensor."""
        columns: list[NDArray[Any]] = []
        for tensor, quantised in zip(tensors, self._quantised, strict=True):
            if not quantised:
                columns.append(tensor)
                continue
            values = tensor.astype(np.float32)
            scale = np.abs(values).max(axis=-1, keepdims=True) / np.float32(127)
            if not np.isfinite(scale).all():
                return None
            step = np.where(scale >= _SMALLEST, scale, np.float32(1))  # below it, dividing would overflow
            columns += [np.rint(values / step).astype(np.int8), step]
        return columns

    def decode(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The values that the codes stand for."""
        left = iter(columns)
        tensors = []
        for dtype, quantised in zip(self._dtypes, self._quantised, strict=True):
            column = next(left)
            tensors.append((column.astype(np.float32) * next(left)).astype(dtype) if quantised else column)
        return tensors


_SMALLEST = np.finfo(np.float32).tiny


def _is_float(dtype: np.dtype[Any]) -> bool:
    """Whether values are floating point, those of ml_dtypes included (their kind is "V")."""
    return dtype.kind == "f" or (dtype.kind == "V" and "float" in dtype.name)

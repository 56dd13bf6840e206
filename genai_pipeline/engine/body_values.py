"""What the stages of a loop's body hand each other during one run: values of all rows, whole or row by row.

Components take and give arrays with padding; operations take and give the values of one row, without. Either form is
made from the other when it is read, so that stages of one kind in a row cost nothing in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import GraphRunError


class BodyValue(Protocol):
    """A value of the rows of one run."""

    @property
    def array(self) -> NDArray[Any]:
        """The rows as one batch [b, ...], padded to [b, S, ...] where they have an axis of new tokens."""

    @property
    def rows(self) -> Sequence[Any]:
        """The value of each row: arrays [1, ...] without padding, or what an operation gave."""


class BatchValue:
    """What a component gave: ``ragged`` are the new tokens per row where axis 1 has them and they differ."""

    def __init__(self, array: NDArray[Any], ragged: Sequence[int] | None = None) -> None:
        self.array = array
        self._ragged = ragged

    @cached_property
    def rows(self) -> Sequence[Any]:
        """Views of each row."""
        array = self.array
        if self._ragged is None:
            return [array[i : i + 1] for i in range(array.shape[0])]
        return [array[i : i + 1, :count] for i, count in enumerate(self._ragged)]


class RowValue:
    """What an operation gave, row by row; ``counts`` are the new tokens per row, ``stage`` who gave it."""

    def __init__(self, rows: Sequence[Any], counts: Sequence[int], stage: str) -> None:
        self.rows = rows
        self._counts = counts
        self._stage = stage

    @cached_property
    def array(self) -> NDArray[Any]:
        """The rows stacked. Raises GraphRunError where their shapes do not allow it: they have to run alone."""
        arrays = [np.asarray(row) for row in self.rows]
        if len(arrays) == 1:
            return arrays[0]
        if any(array.ndim == 0 or array.shape[0] != 1 for array in arrays):
            shapes = ", ".join(sorted({str(list(array.shape)) for array in arrays}))
            raise GraphRunError(f"stage '{self._stage}' gave rows without the batch axis: {shapes}")
        if len({array.shape for array in arrays}) > 1:
            arrays = self._padded(arrays)
        return np.concatenate(arrays)

    def _padded(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Arrays [1, n, ...] with zeros after the n new tokens of their rows."""
        by_token = all(
            array.ndim > 1 and array.shape[1] == count for array, count in zip(arrays, self._counts, strict=True)
        )
        if not by_token or len({array.shape[2:] for array in arrays}) > 1:
            shapes = ", ".join(sorted({str(list(array.shape)) for array in arrays}))
            raise GraphRunError(f"stage '{self._stage}' gave rows that cannot be stacked: {shapes}")
        width = max(self._counts)
        padded = []
        for array, count in zip(arrays, self._counts, strict=True):
            room = np.zeros((1, width, *array.shape[2:]), array.dtype)
            room[:, :count] = array
            padded.append(room)
        return padded

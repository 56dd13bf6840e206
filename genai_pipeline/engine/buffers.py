"""Memory that is allocated once and reused by every step, growing when a run needs more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


class GrowingArray:
    """A flat array that gives C-contiguous views of any shape at a stable address until it has to grow."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._flat: NDArray[Any] = np.empty(0, dtype)
        self._view = self._flat

    def view(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """A view with ``shape``; its content is undefined."""
        if self._view.shape == shape:
            return self._view
        size = math.prod(shape)
        if size > self._flat.size:
            self._flat = np.empty(max(size, 2 * self._flat.size), self._flat.dtype)
        self._view = self._flat[:size].reshape(shape)
        return self._view

"""Memory that is allocated once and reused by every step, growing when a run needs more."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer


class GrowingArray:
    """An array of any shape at a stable address until it has to grow, and the buffer that graphs bind."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._flat: NDArray[Any] = np.empty(0, dtype)
        self._whole = Buffer.of(self._flat)
        self.array = self._flat
        self.buffer = self._whole

    def resize(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """Give array and buffer another shape; the content is then undefined."""
        if self.array.shape == shape:
            return self.array
        size = math.prod(shape)
        if size > self._flat.size:
            self._flat = np.empty(max(size, 2 * self._flat.size), self._flat.dtype)
            self._whole = Buffer.of(self._flat)
        self.array = self._flat[:size].reshape(shape)
        self.buffer = self._whole.shaped(shape)
        return self.array

"""Fills the masks of a batch on a thread of its own while the caller runs a graph."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.constraints.state import ConstraintState
from genai_pipeline.errors import GenaiError


class MaskWorker:
    """One background thread; its owner calls ``start`` and ``wait`` in turn."""

    def __init__(self) -> None:
        self.errors: dict[int, GenaiError] = {}  # by row, of the masks waited for last; such a row is empty
        self._pool = ThreadPoolExecutor(1, "constraint-masks")
        self._pending: Future[dict[int, GenaiError]] | None = None

    def start(self, states: Sequence[ConstraintState | None], buffer: NDArray[np.int32]) -> None:
        """Begin to fill row i of ``buffer`` [rows, words] for state i; rows without a state are left as they are."""
        assert self._pending is None, "masks are waited for before new ones are asked for"
        self._pending = self._pool.submit(_fill, tuple(states), buffer)

    def wait(self) -> None:
        """Return when the masks are filled. What went wrong with a row is in ``errors``; other rows are unharmed."""
        pending, self._pending = self._pending, None
        self.errors = pending.result() if pending is not None else {}

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()


def _fill(states: Sequence[ConstraintState | None], buffer: NDArray[np.int32]) -> dict[int, GenaiError]:
    errors: dict[int, GenaiError] = {}
    for row, state in enumerate(states):
        if state is not None:
            try:
                state.fill(buffer[row])
            except GenaiError as error:
                errors[row] = error
    return errors

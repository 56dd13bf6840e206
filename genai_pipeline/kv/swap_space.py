"""State of preempted sequences, exactly as it left its row, within the budget of the pages it pushes out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from genai_pipeline.kv.pool import SavedTokens
from genai_pipeline.kv.saved import SavedShape, arrays_of, owned
from genai_pipeline.kv.tiered_pages import TieredPages


class Swapped(NamedTuple):
    """State of a preempted sequence."""

    saved: SavedTokens
    num_tokens: int


class SwapSpace:
    """Swapped sequences by key. They are never dropped: someone waits for them."""

    def __init__(self, shape: SavedShape, pages: TieredPages) -> None:
        self._shape = shape
        self._pages = pages
        self._swapped: dict[Hashable, Swapped] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._swapped)

    def put(self, key: Hashable, saved: SavedTokens, num_tokens: int) -> bool:
        """Keep a state; False, and nothing is kept, if there is no room even without the pages that may go."""
        assert key not in self._swapped
        growing, whole = self._shape.split(saved)
        own = self._shape.join([owned(array) for array in growing], [owned(array) for array in whole])
        nbytes = _nbytes(own)
        self._pages.tree.touch(())  # what was used before this call may go
        if nbytes + self.nbytes > self._pages.budget_bytes or not self._pages.charge(nbytes):
            return False
        self._swapped[key] = Swapped(own, num_tokens)
        self.nbytes += nbytes
        return True

    def take(self, key: Hashable) -> Swapped | None:
        """Take a state out, to resume or to end the sequence; None when none is kept."""
        swapped = self._swapped.pop(key, None)
        if swapped is not None:
            nbytes = _nbytes(swapped.saved)
            self._pages.uncharge(nbytes)
            self.nbytes -= nbytes
        return swapped

    def clear(self) -> None:
        """Drop all states."""
        for key in list(self._swapped):
            self.take(key)


def _nbytes(saved: SavedTokens) -> int:
    return sum(array.nbytes for array in arrays_of(saved))

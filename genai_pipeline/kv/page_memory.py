"""Host memory for pages: numbered slots, all of one size, kept per column so that a run of slots loads as one array.

A column of slots [first, first + n) is one C-contiguous array [n * 16, ...]: exactly what a storage takes. Memory is
touched slot by slot, lowest first, and never more than the bound; freed slots stay warm until somebody needs the bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.memory import Region
from genai_pipeline.kv.page_codec import Column


class PageMemory:
    """Slots for pages of these columns, within ``bound_bytes`` of memory."""

    def __init__(self, columns: Sequence[Column], bound_bytes: int) -> None:
        self._columns = tuple(columns)
        self.slot_bytes = PAGE_TOKENS * sum(column.token_bytes for column in columns)
        # Slots without bytes (a loop whose state does not grow) need no bound.
        self._num_slots = bound_bytes // self.slot_bytes if self.slot_bytes else _UNBOUNDED
        self._regions: list[Region] = []
        self._warm: list[int] = []  # a heap of free slots whose memory was touched
        self._cold: list[int] = []  # a heap of free slots whose memory was given back
        self._fresh = 0  # slots from here on were never taken
        self.used = 0

    @property
    def warm(self) -> int:
        """Free slots that still have memory."""
        return len(self._warm)

    def take(self) -> int | None:
        """The lowest free slot, of those with memory first; None when all are taken."""
        for free in (self._warm, self._cold):
            if free:
                self.used += 1
                return heapq.heappop(free)
        if self._fresh == self._num_slots:
            return None
        self.used += 1
        self._fresh += 1
        return self._fresh - 1

    def give(self, slots: Iterable[int]) -> None:
        """Free slots; they stay warm."""
        for slot in slots:
            heapq.heappush(self._warm, slot)
            self.used -= 1

    def write(self, slots: Sequence[int], columns: Sequence[NDArray[Any]]) -> None:
        """Copy pages into slots: ``columns`` hold the tokens of all of them, [len(slots) * 16, ...]."""
        start = 0
        for first, length in runs(slots):
            stop = start + length * PAGE_TOKENS
            for view, column in zip(self.view(first, length), columns, strict=True):
                view[...] = column[start:stop]
            start = stop

    def view(self, first: int, length: int) -> list[NDArray[Any]]:
        """The columns of slots [first, first + length), each [length * 16, ...], valid until they are written over."""
        views = []
        for region, column in zip(self._mapped(), self._columns, strict=True):
            offset = first * PAGE_TOKENS * column.token_bytes
            views.append(region.array(offset, (length * PAGE_TOKENS, *column.shape), column.dtype))
        return views

    def cool(self, most: int) -> None:
        """Give back the memory of free slots until at most ``most`` of them are warm."""
        self._warm.sort()  # a sorted list is a heap too
        keep = max(0, most)
        for slot in self._warm[keep:]:
            heapq.heappush(self._cold, slot)
            self._discard(slot)
        del self._warm[keep:]

    def close(self) -> None:
        """Give all memory back. No view may be read any more."""
        for region in self._regions:
            region.close()
        self._regions = []

    def _discard(self, slot: int) -> None:
        for region, column in zip(self._mapped(), self._columns, strict=True):
            size = PAGE_TOKENS * column.token_bytes
            # Whole pages of memory only: their neighbours belong to other slots.
            low = -(-slot * size // region.page_bytes) * region.page_bytes
            high = (slot + 1) * size // region.page_bytes * region.page_bytes
            if high > low:
                region.discard(low, high - low)

    def _mapped(self) -> list[Region]:
        """The columns' memory, reserved when it is first needed."""
        if not self._regions:
            size = Region.page_bytes
            for column in self._columns:
                nbytes = self._num_slots * PAGE_TOKENS * column.token_bytes
                self._regions.append(Region(-(-nbytes // size) * size))
        return self._regions


_UNBOUNDED = 2**62


def runs(slots: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Slots in order as (first, length) of stretches without a gap."""
    first, length = 0, 0
    for slot in slots:
        if length and slot == first + length:
            length += 1
            continue
        if length:
            yield first, length
        first, length = slot, 1
    if length:
        yield first, length

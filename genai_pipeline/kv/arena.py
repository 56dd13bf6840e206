"""State in fixed buffers that graphs update in place: one region of memory per state tensor, one row per sequence.

Past and present of a run are the same memory, so a step copies nothing, and a row keeps its address while its
sequence grows. A batch is a range of rows, bound by the address of its first. Memory is touched token by token (see
``memory``); a row moves by remapping its pages, which costs the same for any length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.memory import Region, resident_bytes
from genai_pipeline.kv.row_ranges import RowRanges

WARM_TOKENS = 512  # tokens whose memory an ended row keeps, so that the next one does not fault it in again


class ArenaStorage(RowRanges):
    """Rows [0, max_rows) of ``capacity`` tokens for the updates ``in_place`` and ``scatter``.

    ``capacity`` must make stripes whole pages of memory (``geometry.aligned_capacity``).
    """

    def __init__(self, plan: StatePlan, *, max_rows: int, capacity: int, warm_tokens: int = WARM_TOKENS) -> None:
        super().__init__(max_rows=max_rows, capacity=capacity)
        self._warm_tokens = warm_tokens
        self._arenas = [_Arena(TensorLayout.of(tensor), max_rows, capacity) for tensor in plan.tensors]

    def move(self, source: int, target: int) -> None:
        """Move a live row into a free one by remapping its pages, or by copying its tokens where that is impossible."""
        assert source in self._lengths
        assert target not in self._lengths
        length = self._lengths.pop(source)
        for arena in self._arenas:
            arena.move(source, target, length)
        self._lengths[target] = length
        self._touched[target], self._touched[source] = self._touched[source], 0

    def release(self, row: int) -> None:
        """End a row; up to ``warm_tokens`` of its memory stay warm."""
        del self._lengths[row]
        self._discard(row, self._warm_tokens)

    def trim(self) -> None:
        """Give back the memory that free rows keep warm."""
        for row, touched in enumerate(self._touched):
            if touched and row not in self._lengths:
                self._discard(row, 0)

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop), each [tokens, *outer, *inner]."""
        assert 0 <= start <= stop <= self._lengths[row]
        return [arena.tokens(row)[start:stop].copy() for arena in self._arenas]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write saved tokens [start, stop) and commit them."""
        assert start <= self._lengths[row]
        assert stop <= self._capacity
        assert len(tensors[0]) == stop - start
        for arena, saved in zip(self._arenas, tensors, strict=True):
            arena.tokens(row)[start:stop] = saved
        self._touch((row,), stop)
        self._lengths[row] = stop

    def resident_bytes(self) -> int | None:
        """Bytes of the arenas that are in memory."""
        return resident_bytes(arena.region for arena in self._arenas)

    def close(self) -> None:
        """Give all memory back."""
        for arena in self._arenas:
            arena.region.close()
        self._bound.clear()

    def _bind_range(self, binding: Binding, first: int, count: int) -> None:
        for arena in self._arenas:
            arena.bind(binding, first, count)

    def _discard(self, row: int, keep: int) -> None:
        if self._touched[row] > keep:
            for arena in self._arenas:
                arena.discard(row, keep, self._touched[row])
            self._touched[row] = keep


class _Arena:
    """The rows of one state tensor: [max_rows, *outer, capacity, *inner], contiguous."""

    def __init__(self, layout: TensorLayout, max_rows: int, capacity: int) -> None:
        self._layout = layout
        self._capacity = capacity
        self._stripe_bytes = capacity * layout.stripe_token_bytes
        self._row_bytes = layout.stripes * self._stripe_bytes
        self.region = Region(max_rows * self._row_bytes)
        assert self._stripe_bytes % self.region.page_bytes == 0

    def bind(self, binding: Binding, first: int, count: int) -> None:
        """Bind past and present to the rows [first, first + count)."""
        address = self.region.address + first * self._row_bytes
        buffer = Buffer(address, self._layout.shape(count, self._capacity), self._layout.dtype, self.region)
        binding.bind_input(self._layout.tensor.past, buffer)
        if self._layout.tensor.present is not None:
            binding.bind_output(self._layout.tensor.present, buffer)

    def tokens(self, row: int) -> NDArray[Any]:
        """A view of a row with the tokens first: [capacity, *outer, *inner]."""
        layout = self._layout
        shape = layout.shape(1, self._capacity)[1:]
        return np.moveaxis(self.region.array(row * self._row_bytes, shape, layout.dtype), len(layout.outer), 0)

    def move(self, source: int, target: int, length: int) -> None:
        """Put what one row holds into another."""
        if not self.region.remap(source * self._row_bytes, target * self._row_bytes, self._row_bytes):
            self.tokens(target)[:length] = self.tokens(source)[:length]

    def discard(self, row: int, start: int, stop: int) -> None:
        """Give back the whole memory pages of tokens [start, stop)."""
        page = self.region.page_bytes
        low = -(-start * self._layout.stripe_token_bytes // page) * page
        high = -(-stop * self._layout.stripe_token_bytes // page) * page
        for stripe in range(self._layout.stripes):
            offset = row * self._row_bytes + stripe * self._stripe_bytes
            self.region.discard(offset + low, high - low)

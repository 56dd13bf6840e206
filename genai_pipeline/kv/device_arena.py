"""State in a device's memory that graphs update in place: one piece per state tensor, one row per sequence.

As in ``arena``, rows have fixed addresses, and a batch is a range of them. The device holds all rows in full from the
beginning, so that their number is bounded by what was claimed for them. Tokens cross to the host where they are saved
and loaded, and only those; what goes from row to row stays on the device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer, Memory
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.row_ranges import RowRanges


class DeviceArenaStorage(RowRanges):
    """Rows [0, max_rows) of ``capacity`` tokens in ``memory``, for the updates ``in_place`` and ``scatter``.

    ``blank``: a row starts from zeros, as graphs read more of it than they use. Raises CapacityError when the device
    has too little memory.
    """

    def __init__(self, plan: StatePlan, memory: Memory, *, max_rows: int, capacity: int, blank: bool = False) -> None:
        super().__init__(max_rows=max_rows, capacity=capacity)
        self._arenas = [_Arena(TensorLayout.of(tensor), memory, max_rows, capacity, blank) for tensor in plan.tensors]
        self._blank = blank

    def move(self, source: int, target: int) -> None:
        """Copy a live row into a free one."""
        assert source in self._lengths
        assert target not in self._lengths
        length = self._lengths[target] = self._lengths[source]
        self._copy(source, target, 0, length)
        self.release(source)

    def release(self, row: int) -> None:
        """End a row."""
        del self._lengths[row]
        if self._blank and self._touched[row]:
            for arena in self._arenas:
                arena.clear(row, self._touched[row])
            self._touched[row] = 0

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Tokens [start, stop) brought to the host, each [tokens, *outer, *inner]."""
        assert 0 <= start <= stop <= self._lengths[row]
        return [arena.read(row, start, stop) for arena in self._arenas]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write saved tokens [start, stop) and commit them."""
        assert start <= self._lengths[row]
        assert stop <= self._capacity
        assert len(tensors[0]) == stop - start
        self._touch((row,), stop)
        for arena, saved in zip(self._arenas, tensors, strict=True):
            arena.write(row, start, stop, saved)
        self._lengths[row] = stop

    def fork(self, source: int, target: int, length: int) -> None:
        """Copy the first tokens into an empty row within the device."""
        self.graft(source, target, 0, length)

    def graft(self, source: int, target: int, start: int, stop: int) -> None:
        """Copy tokens [start, stop) of another row within the device, and commit them."""
        assert start <= self._lengths[target]
        assert stop <= self._lengths[source]
        self._copy(source, target, start, stop)
        self._lengths[target] = stop

    def resident_bytes(self) -> int | None:
        """Bytes of all rows: the device holds them from the beginning."""
        return sum(arena.nbytes for arena in list(self._arenas))

    def close(self) -> None:
        """Give all memory back."""
        self._arenas.clear()
        self._bound.clear()

    def _bind_range(self, binding: Binding, first: int, count: int) -> None:
        for arena in self._arenas:
            arena.bind(binding, first, count)

    def _copy(self, source: int, target: int, start: int, stop: int) -> None:
        self._touch((target,), stop)
        for arena in self._arenas:
            arena.copy(source, target, start, stop)


class _Arena:
    """The rows of one state tensor: [max_rows, *outer, capacity, *inner], contiguous.

    ``zeros``: one stripe that no graph writes, to clear others with.
    """

    def __init__(self, layout: TensorLayout, memory: Memory, max_rows: int, capacity: int, blank: bool) -> None:
        self._layout = layout
        self._memory = memory
        self._capacity = capacity
        self._rows = memory.allocate(layout.shape(max_rows, capacity), layout.dtype)
        self._zeros = memory.allocate((capacity, *layout.inner), layout.dtype) if blank else None
        self._stripe_bytes = capacity * layout.stripe_token_bytes
        self._row_bytes = layout.stripes * self._stripe_bytes
        self.nbytes = max_rows * self._row_bytes + (self._stripe_bytes if blank else 0)

    def bind(self, binding: Binding, first: int, count: int) -> None:
        """Bind past and present to the rows [first, first + count)."""
        shape = self._layout.shape(count, self._capacity)
        buffer = replace(self._rows, address=self._rows.address + first * self._row_bytes, shape=shape)
        binding.bind_input(self._layout.tensor.past, buffer)
        if self._layout.tensor.present is not None:
            binding.bind_output(self._layout.tensor.present, buffer)

    def read(self, row: int, start: int, stop: int) -> NDArray[Any]:
        """Tokens of a row on the host, [tokens, *outer, *inner]."""
        layout = self._layout
        tokens = np.empty(layout.shape(1, stop - start)[1:], layout.dtype)
        for place, stripe in zip(self._stripes_of(tokens), self._stripes(row, start, stop), strict=True):
            place[...] = self._memory.read(stripe)
        return np.ascontiguousarray(np.moveaxis(tokens, len(layout.outer), 0))

    def write(self, row: int, start: int, stop: int, saved: NDArray[Any]) -> None:
        """Put tokens [tokens, *outer, *inner] of the host into a row."""
        tokens = np.ascontiguousarray(np.moveaxis(saved, 0, len(self._layout.outer)), self._layout.dtype)
        for piece, stripe in zip(self._stripes_of(tokens), self._stripes(row, start, stop), strict=True):
            self._memory.write(stripe, piece)

    def copy(self, source: int, target: int, start: int, stop: int) -> None:
        """Put tokens of one row into another."""
        for one, other in zip(self._stripes(source, start, stop), self._stripes(target, start, stop), strict=True):
            self._memory.copy(one, other)

    def clear(self, row: int, stop: int) -> None:
        """Make the first tokens of a row zeros."""
        assert self._zeros is not None
        for stripe in self._stripes(row, 0, stop):
            self._memory.copy(self._zeros.shaped(stripe.shape), stripe)

    def _stripes(self, row: int, start: int, stop: int) -> Iterator[Buffer]:
        """Tokens [start, stop) of each stripe of a row, [tokens, *inner]; none where there are no tokens."""
        layout, shape = self._layout, (stop - start, *self._layout.inner)
        begin = self._rows.address + row * self._row_bytes + start * layout.stripe_token_bytes
        for stripe in range(layout.stripes if stop > start else 0):
            yield replace(self._rows, address=begin + stripe * self._stripe_bytes, shape=shape)

    def _stripes_of(self, tokens: NDArray[Any]) -> Sequence[NDArray[Any]]:
        """The stripes of an array [*outer, tokens, *inner], each [tokens, *inner]; none where there are no tokens."""
        layout = self._layout
        return list(tokens.reshape(layout.stripes, -1, *layout.inner)) if tokens.size else []

"""State of graphs that would update it in place, on a backend that gives every output memory of its own.

Each row keeps its tokens in an array of its own. A run gets the pasts of its rows side by side, padded at the end to
what the longest will have afterwards; of what it returns, only the new tokens are taken over. That costs two copies of
the past per run, one here and one in the graph, and needs nothing of the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.blocks import Memory
from genai_pipeline.kv.geometry import PAGE_TOKENS, TensorLayout, pages_for
from genai_pipeline.kv.storage import StateStorage


class GatheredStorage(StateStorage):
    """Rows of the updates ``in_place`` and ``scatter``, up to ``capacity`` tokens each."""

    def __init__(self, plan: StatePlan, *, capacity: int) -> None:
        assert all(tensor.present is not None for tensor in plan.tensors)
        self._layouts = [TensorLayout.of(tensor) for tensor in plan.tensors]
        self._pasts = [Memory(layout.dtype) for layout in self._layouts]
        self._capacity = capacity
        self._rows: dict[int, _Row] = {}
        self._bound: Binding | None = None  # of the last bind, until its run is committed

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """Rows are padded at the end: each has its own length."""
        return "right"

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""
        assert row not in self._rows, f"row {row} is taken"
        self._rows[row] = _Row(self._layouts)

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind copies of the rows' pasts, and the backend's own memory as present."""
        assert [self._rows[row].length for row in rows] == list(lengths)
        width = max(lengths) + max(new)
        assert width <= self._capacity or len(rows) > 1
        for index, (layout, memory) in enumerate(zip(self._layouts, self._pasts, strict=True)):
            shape = layout.shape(len(rows), width)
            size = int(np.prod(shape))
            memory.reserve(size)
            past = memory.array[:size].reshape(shape)
            for slot, row in enumerate(rows):
                self._rows[row].copy_to(_tokens_first(past[slot], layout), index)
            binding.bind_input(layout.tensor.past, memory.buffer.shaped(shape))
            binding.bind_output(layout.tensor.present or "", None)
        self._bound = binding
        return max(lengths)

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Take over the new tokens of each row from what the run returned."""
        assert self._bound is not None
        for index, layout in enumerate(self._layouts):
            present = self._bound.output(layout.tensor.present or "")
            for slot, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                self._rows[row].write(index, _tokens_first(present[slot], layout), self._rows[row].length, length)
        for row, length in zip(rows, lengths, strict=True):
            self._rows[row].length = length
        self._bound = None

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on."""
        assert length <= self._rows[row].length
        self._rows[row].length = length

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        assert target not in self._rows, f"row {target} is taken"
        self._rows[target] = self._rows.pop(source)

    def release(self, row: int) -> None:
        """End a row and give its memory back."""
        del self._rows[row]

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop), each [tokens, *outer, *inner]."""
        assert 0 <= start <= stop <= self._rows[row].length
        return [tokens[start:stop].copy() for tokens in self._rows[row].tokens]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write saved tokens [start, stop) and commit them."""
        own = self._rows[row]
        assert start <= own.length
        assert len(tensors[0]) == stop - start
        assert stop <= self._capacity
        for index, tensor in enumerate(tensors):
            own.reserve(index, stop)
            own.tokens[index][start:stop] = tensor
        own.length = stop

    def resident_bytes(self) -> int | None:
        """Bytes of all rows, and of what the last run read."""
        rows = sum(tokens.nbytes for row in list(self._rows.values()) for tokens in row.tokens)
        return rows + sum(memory.array.nbytes for memory in self._pasts)

    def close(self) -> None:
        """Give all memory back."""
        self._rows.clear()
        self._bound = None
        self._pasts = [Memory(layout.dtype) for layout in self._layouts]


class _Row:
    """One sequence: ``length`` tokens in arrays that grow by pages, one per tensor, [tokens, *outer, *inner]."""

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self.length = 0
        self.tokens = [np.empty((0, *layout.outer, *layout.inner), layout.dtype) for layout in layouts]

    def copy_to(self, past: NDArray[Any], index: int) -> None:
        """Write the tokens at the beginning of a past, zeros after them: even what a mask hides must be finite."""
        past[: self.length] = self.tokens[index][: self.length]
        past[self.length :] = 0

    def write(self, index: int, present: NDArray[Any], start: int, stop: int) -> None:
        """Take tokens [start, stop) of what a run returned."""
        self.reserve(index, stop)
        self.tokens[index][start:stop] = present[start:stop]

    def reserve(self, index: int, tokens: int) -> None:
        """Have room for so many tokens; growing by half as much again keeps copies few."""
        old = self.tokens[index]
        if len(old) < tokens:
            room = pages_for(max(tokens, len(old) + len(old) // 2)) * PAGE_TOKENS
            self.tokens[index] = np.empty((room, *old.shape[1:]), old.dtype)
            self.tokens[index][: self.length] = old[: self.length]


def _tokens_first(row: NDArray[Any], layout: TensorLayout) -> NDArray[Any]:
    """A view of one row [*outer, length, *inner] as [length, *outer, *inner]."""
    return np.moveaxis(row, len(layout.outer), 0)

"""State of graphs that return present = past + new: rows of one batch share a block, padded on the left.

A block is [b, *outer, P, *inner]: row i has its tokens at the end, before them padding that the mask hides. While
the same rows run together, the present of one run is the past of the next without a copy, in two buffers that take
turns. When the company of rows changes, or a run's tokens were not all committed, the rows are joined into a new
block, as wide as the longest of them, so padding never outlives the row that caused it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import TensorLayout


@dataclass(slots=True)
class _Place:
    """Where a live row's tokens are: [end - length, end) of its block."""

    block: _Block | None
    length: int = 0
    end: int = 0


class AppendStorage:
    """Rows of the update ``append``, up to ``capacity`` tokens each."""

    def __init__(self, plan: StatePlan, *, capacity: int) -> None:
        assert all(tensor.present is not None for tensor in plan.tensors)
        self._layouts = [TensorLayout.of(tensor) for tensor in plan.tensors]
        self._capacity = capacity
        self._places: dict[int, _Place] = {}
        self._pending: tuple[_Block, int] | None = None  # what the last bind prepared, and how many tokens it adds

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """Shorter rows are padded before their first token."""
        return "left"

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""
        assert row not in self._places, f"row {row} is taken"
        self._places[row] = _Place(None)

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the rows' block as past and its other buffers, ``max(new)`` tokens longer, as present."""
        assert [self._places[row].length for row in rows] == list(lengths)
        assert max(lengths) + max(new) <= self._capacity or len(rows) > 1
        block = self._together(tuple(rows)) or self._join(tuple(rows))
        added = max(new)
        for tensor, layout in zip(block.tensors, self._layouts, strict=True):
            past, present = (layout.shape(len(rows), width) for width in (block.width, block.width + added))
            tensor.bind(binding, past, present)
        self._pending = (block, added)
        return block.width

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """The present of the last run is the past of the next; rows keep ``lengths`` tokens of it."""
        assert self._pending is not None
        block, added = self._pending
        assert block.rows == list(rows)
        self._pending = None
        block.advance(added)
        for row, length in zip(rows, lengths, strict=True):
            place = self._places[row]
            assert place.length <= length <= place.length + added
            place.end += length - place.length
            place.length = length

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on."""
        place = self._places[row]
        assert length <= place.length
        place.end -= place.length - length
        place.length = length

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        assert target not in self._places
        place = self._places.pop(source)
        self._places[target] = place
        if place.block is not None:
            place.block.rows[place.block.rows.index(source)] = target

    def release(self, row: int) -> None:
        """End a row; its block goes with the last of its rows."""
        self._leave(row)
        del self._places[row]

    def trim(self) -> None:
        """Free rows keep nothing."""

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop), each [tokens, *outer, *inner]."""
        assert 0 <= start <= stop <= self._places[row].length
        return [tokens[start:stop].copy() for tokens in self._tokens(row)]

    def load(self, row: int, start: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write saved tokens from ``start`` on and commit them, in a block of the row's own."""
        stop = start + len(tensors[0])
        assert start <= self._places[row].length
        assert stop <= self._capacity
        block = _Block(self._layouts, [row], stop)
        for i, (old, saved) in enumerate(zip(self._tokens(row), tensors, strict=True)):
            tokens = block.tokens(0, i)
            tokens[:start] = old[:start]
            tokens[start:] = saved
        self._leave(row)
        self._places[row] = _Place(block, stop, stop)

    def resident_bytes(self) -> int | None:
        """Bytes of all blocks, both buffers of each tensor."""
        blocks = {id(place.block): place.block for place in self._places.values() if place.block is not None}
        return sum(block.nbytes for block in blocks.values())

    def close(self) -> None:
        """Give all memory back."""
        self._places.clear()
        self._pending = None

    def _together(self, rows: tuple[int, ...]) -> _Block | None:
        """The block of exactly these rows in this order, if each has its tokens at the end of it."""
        block = self._places[rows[0]].block
        if block is None or tuple(block.rows) != rows:
            return None
        return block if all(self._places[row].end == block.width for row in rows) else None

    def _join(self, rows: tuple[int, ...]) -> _Block:
        """Copy rows from wherever they are into a block of their own."""
        width = max(self._places[row].length for row in rows)
        block = _Block(self._layouts, list(rows), width)
        for slot, row in enumerate(rows):
            length = self._places[row].length
            for i, tokens in enumerate(self._tokens(row)):
                block.tokens(slot, i)[width - length :] = tokens
            self._leave(row)
            self._places[row] = _Place(block, length, width)
        return block

    def _tokens(self, row: int) -> list[NDArray[Any]]:
        """Views of a row's tokens, one per tensor, each [length, *outer, *inner]."""
        place = self._places[row]
        if place.block is None:
            return [np.empty((0, *layout.outer, *layout.inner), layout.dtype) for layout in self._layouts]
        slot = place.block.rows.index(row)
        span = slice(place.end - place.length, place.end)
        return [place.block.tokens(slot, i)[span] for i in range(len(self._layouts))]

    def _leave(self, row: int) -> None:
        block = self._places[row].block
        if block is not None:
            block.rows[block.rows.index(row)] = _NOBODY


_NOBODY = -1


class _Block:
    """Rows that run together: who they are, the width all are padded to, and the buffers of each tensor."""

    def __init__(self, layouts: Sequence[TensorLayout], rows: list[int], width: int) -> None:
        self.rows = rows
        self.width = width
        self.tensors = [_DoubleBuffer(layout, len(rows), width) for layout in layouts]

    @property
    def nbytes(self) -> int:
        """Bytes of all its buffers."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def advance(self, added: int) -> None:
        """Make the present the past."""
        self.width += added
        for tensor in self.tensors:
            tensor.swap()

    def tokens(self, slot: int, index: int) -> NDArray[Any]:
        """A view of one row of one tensor with the tokens first: [P, *outer, *inner]."""
        return self.tensors[index].tokens(slot, len(self.rows), self.width)


class _DoubleBuffer:
    """Past and present of one tensor as flat memory that only grows; they take turns."""

    def __init__(self, layout: TensorLayout, batch: int, width: int) -> None:
        self._layout = layout
        # Padding must be finite even where a mask hides it: 0 * nan is nan.
        self._past: NDArray[Any] = np.zeros(max(1, math.prod(layout.shape(batch, width))), layout.dtype)
        self._present: NDArray[Any] = np.empty(1, layout.dtype)
        self._past_buffer, self._present_buffer = Buffer.of(self._past), Buffer.of(self._present)

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self._past.nbytes + self._present.nbytes

    def bind(self, binding: Binding, past: tuple[int, ...], present: tuple[int, ...]) -> None:
        """Bind past and present in these shapes."""
        tensor = self._layout.tensor
        size = math.prod(present)
        if self._present.size < size:
            self._present = np.empty(max(size, 2 * self._past.size), self._layout.dtype)
            self._present_buffer = Buffer.of(self._present)
        binding.bind_input(tensor.past, self._past_buffer.shaped(past))
        binding.bind_output(tensor.present or "", self._present_buffer.shaped(present))

    def swap(self) -> None:
        """Make the present the past; the old past is written over by the next run."""
        self._past, self._present = self._present, self._past
        self._past_buffer, self._present_buffer = self._present_buffer, self._past_buffer

    def tokens(self, slot: int, batch: int, width: int) -> NDArray[Any]:
        """A view of one row with the tokens first."""
        shape = self._layout.shape(batch, width)
        rows = self._past[: math.prod(shape)].reshape(shape)
        return np.moveaxis(rows[slot], len(self._layout.outer), 0)

"""Rows that run together lie side by side in blocks; who joins or leaves is copied, the others stay where they are.

A block has slots [0, b), one per row, in one piece of memory per tensor, so that all of it is bound as one batch. To
bring rows together, the block that holds most of them is taken: rows it has in the right slot stay, the others are
copied in, and live rows of no concern here are copied out. Rows that keep their numbers consecutive (``move`` of the
last into the gap) therefore cost one copy per row that joins or leaves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer
from genai_pipeline.graph.plan import StateTensor
from genai_pipeline.types import numpy_dtype

NOBODY = -1
SPARE = 2  # blocks without rows whose memory stays warm: fresh memory costs more than what is copied into it


class Block(ABC):
    """Slots of one batch; ``rows`` says whose each is."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    @abstractmethod
    def resize(self, slots: int) -> None:
        """Have so many slots; what is in those that stay does not change. New ones are nobody's."""

    @abstractmethod
    def clear(self, slot: int) -> None:
        """Let a slot hold an empty row."""

    @abstractmethod
    def take(self, slot: int, source: Self, source_slot: int) -> None:
        """Copy a row from another block, or from a slot of this one that is given up."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of memory it holds."""


B = TypeVar("B", bound=Block)


class Blocks(Generic[B]):
    """Where the live rows of one storage are.

    ``make(rows)`` gives a block without slots that is fit for these rows; it may be made of one of ``spare``.
    """

    def __init__(self, make: Callable[[Sequence[int]], B]) -> None:
        self._make = make
        self.spare: list[B] = []
        self._at: dict[int, B | None] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._at

    def open(self, row: int) -> None:
        """Begin an empty row, in no block."""
        assert row not in self._at, f"row {row} is taken"
        self._at[row] = None

    def find(self, row: int) -> tuple[B, int] | None:
        """The block and slot of a row; None for one that is empty."""
        block = self._at[row]
        return None if block is None else (block, block.rows.index(row))

    def leave(self, row: int) -> None:
        """Make a row empty; its block goes with the last of its rows."""
        block = self._at[row]
        if block is not None:
            self._at[row] = None
            self._vacate(block, block.rows.index(row))

    def release(self, row: int) -> None:
        """End a row."""
        self.leave(row)
        del self._at[row]

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        assert target not in self._at, f"row {target} is taken"
        block = self._at[target] = self._at.pop(source)
        if block is not None:
            block.rows[block.rows.index(source)] = target

    def together(self, rows: Sequence[int]) -> B | None:
        """The block that holds exactly these rows in this order, if there is one."""
        block = self._at[rows[0]]
        return block if block is not None and block.rows == list(rows) else None

    def claim(self, rows: Sequence[int]) -> B:
        """The block to bring rows together in: no other live row is in it any more."""
        block = self._home(rows)
        if block is None:
            return self._make(rows)
        for row in block.rows:
            if row != NOBODY and row not in rows:
                self._set_apart(row)
        return block

    def fill(self, block: B, rows: Sequence[int]) -> None:
        """Copy rows into their slots of a claimed block; those that are there already stay untouched."""
        block.resize(max(len(rows), len(block.rows)))
        wrong = [slot for slot, row in enumerate(rows) if block.rows[slot] != row]
        while wrong:
            slot = next((slot for slot in wrong if block.rows[slot] == NOBODY), None)
            if slot is None:  # they wait for each other in a circle
                self._set_apart(block.rows[wrong[0]])
            else:
                self._put(block, slot, rows[slot])
                wrong.remove(slot)
        block.resize(len(rows))

    def adopt(self, block: B) -> None:
        """Let the rows of a new block be in it, wherever they were."""
        for row in block.rows:
            self.leave(row)
            self._at[row] = block

    def close(self) -> None:
        """Forget all rows."""
        self._at.clear()
        self.spare.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks; any thread may ask."""
        blocks = [*self.spare, *(block for block in list(self._at.values()) if block is not None)]
        return sum(block.nbytes for block in {id(block): block for block in blocks}.values())

    def _home(self, rows: Sequence[int]) -> B | None:
        """The block with most of these rows, unless it has as many others."""
        counts: dict[int, int] = {}
        for row in rows:
            counts[id(self._at[row])] = counts.get(id(self._at[row]), 0) + 1
        block = max((self._at[row] for row in rows), key=lambda found: (found is not None, counts[id(found)]))
        if block is None:
            return None
        others = sum(row != NOBODY and row not in rows for row in block.rows)
        return block if others < counts[id(block)] else None

    def _vacate(self, block: B, slot: int) -> None:
        block.rows[slot] = NOBODY
        if all(row == NOBODY for row in block.rows):
            block.resize(0)
            self.spare = [block, *self.spare[: SPARE - 1]]

    def _set_apart(self, row: int) -> None:
        """Copy a row into a block of its own."""
        alone = self._make([row])
        alone.resize(1)
        self._put(alone, 0, row)

    def _put(self, block: B, slot: int, row: int) -> None:
        """Copy a row from wherever it is into a slot that is nobody's."""
        source = self._at[row]
        place = 0 if source is None else source.rows.index(row)
        if source is None:
            block.clear(slot)
        else:
            block.take(slot, source, place)
        block.rows[slot] = row
        self._at[row] = block
        if source is not None:
            self._vacate(source, place)


class Memory:
    """Flat memory of one tensor that only grows, half as much again each time."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.array: NDArray[Any] = np.empty(1, dtype)
        self.buffer = Buffer.of(self.array)

    def reserve(self, size: int, keep: int = 0) -> None:
        """Have at least ``size`` elements; the first ``keep`` stay as they are."""
        if self.array.size < size:
            old = self.array
            self.array = np.empty(size + size // 2 if keep or old.size > 1 else size, old.dtype)
            self.array[:keep] = old[:keep]
            self.buffer = Buffer.of(self.array)


class DoubleBuffer:
    """Past and present of one state tensor; they take turns."""

    def __init__(self, tensor: StateTensor) -> None:
        assert tensor.present is not None
        self._ports = tensor.past, tensor.present
        self.past, self.present = Memory(numpy_dtype(tensor.dtype)), Memory(numpy_dtype(tensor.dtype))

    def bind(self, binding: Binding, past: tuple[int, ...], present: tuple[int, ...]) -> None:
        """Bind past and present in these shapes."""
        self.present.reserve(math.prod(present))
        binding.bind_input(self._ports[0], self.past.buffer.shaped(past))
        binding.bind_output(self._ports[1], self.present.buffer.shaped(present))

    def swap(self) -> None:
        """Make the present the past; the old past is written over by the next run."""
        self.past, self.present = self.present, self.past

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.past.array.nbytes + self.present.array.nbytes

"""Large states of equal shapes side by side: where each row's lies, and how those of one run come to lie in a row.

A state is written straight into its slot; a run binds the slots of its rows as one piece of memory. Only rows that do
not lie beside each other are copied: after a row in the middle has ended, one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.kv.blocks import NOBODY, SPARE, Memory
from genai_pipeline.kv.geometry import TensorLayout


class Shelf:
    """Slots for the states of up to ``most`` rows, one memory per tensor; ``widths`` are the lengths of the tensors.

    From its second row on it has the address space of all rows at once, and one more slot to exchange rows through:
    memory costs nothing before it is written, and copying states into new memory would hold up the decode rows.
    """

    def __init__(self, layouts: Sequence[TensorLayout], most: int) -> None:
        self._layouts = layouts
        self._most = most
        self._memories = [Memory(layout.dtype) for layout in layouts]
        self._written = [0] * len(layouts)  # elements of each memory that were ever used
        self._rows: list[int] = []  # whose each slot is
        self._shapes: list[tuple[int, ...]] = []
        self.widths: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all memory that was ever written."""
        return sum(memory.array.itemsize * used for memory, used in zip(self._memories, self._written, strict=True))

    @property
    def empty(self) -> bool:
        """Whether it holds nobody's state."""
        return all(row == NOBODY for row in self._rows)

    def prepare(self, widths: tuple[int, ...]) -> None:
        """Be for states of these lengths from now on; nobody's state may be here."""
        assert self.empty
        self.widths, self._rows = widths, []
        self._shapes = [layout.shape(1, width)[1:] for layout, width in zip(self._layouts, widths, strict=True)]

    def put(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write a row's state, one array per tensor without the batch axis, into the first free slot."""
        slot = self._free_slot()
        self._rows[slot] = row
        for own, tensor in zip(self._slot(slot), tensors, strict=True):
            assert own.shape == tensor.shape
            own[...] = tensor

    def state(self, row: int) -> list[NDArray[Any]]:
        """Views of a row's state, one per tensor."""
        return self._slot(self._rows.index(row))

    def rename(self, row: int, name: int) -> None:
        """Call a row by another number."""
        self._rows[self._rows.index(row)] = name

    def remove(self, row: int) -> None:
        """Let go of a row's state."""
        self._rows[self._rows.index(row)] = NOBODY

    def together(self, rows: Sequence[int]) -> list[Buffer]:
        """The states of these rows as one batch per tensor, [b, *shape]; what lies elsewhere is brought there."""
        start = self._best_start(rows)
        for slot, row in enumerate(rows, start):
            if self._rows[slot] == row:
                continue
            if self._rows[slot] != NOBODY:
                self._shift(slot, self._free_slot())
            self._shift(self._rows.index(row), slot)
        return [
            Buffer(
                memory.buffer.address + start * math.prod(shape) * memory.array.itemsize,
                (len(rows), *shape),
                memory.buffer.dtype,
                memory.array,
            )
            for memory, shape in zip(self._memories, self._shapes, strict=True)
        ]

    def _best_start(self, rows: Sequence[int]) -> int:
        """The first slot of the range that moves the fewest states: those not in their place, and others in it."""
        self._grow(len(rows))
        found = {row: slot for slot, row in enumerate(self._rows)}
        last = len(self._rows) - len(rows)
        starts = {min(max(found[row] - place, 0), last) for place, row in enumerate(rows)}

        def moved(start: int) -> tuple[int, int]:
            pairs = [(self._rows[slot], row) for slot, row in enumerate(rows, start)]
            return sum((there != row) + (there not in (NOBODY, row)) for there, row in pairs), start

        return min(starts, key=moved)

    def _free_slot(self) -> int:
        if NOBODY not in self._rows:
            self._grow(len(self._rows) + 1)
        return self._rows.index(NOBODY)

    def _grow(self, slots: int) -> None:
        """Have at least so many slots."""
        if slots <= len(self._rows):
            return
        room = slots if slots < 2 else max(slots, self._most + 1)
        for memory, shape in zip(self._memories, self._shapes, strict=True):
            memory.reserve(room * math.prod(shape), len(self._rows) * math.prod(shape))
        self._rows += [NOBODY] * (slots - len(self._rows))

    def _shift(self, source: int, target: int) -> None:
        """Move a state to a free slot."""
        for own, other in zip(self._slot(target), self._slot(source), strict=True):
            own[...] = other
        self._rows[target], self._rows[source] = self._rows[source], NOBODY

    def _slot(self, slot: int) -> list[NDArray[Any]]:
        views: list[NDArray[Any]] = []
        for index, (memory, shape) in enumerate(zip(self._memories, self._shapes, strict=True)):
            size = math.prod(shape)
            self._written[index] = max(self._written[index], (slot + 1) * size)
            views.append(memory.array[slot * size : (slot + 1) * size].reshape(shape))
        return views


class Shelves:
    """The shelves of one storage: rows whose states have equal shapes share one; emptied ones stay warm."""

    def __init__(self, layouts: Sequence[TensorLayout], most: int) -> None:
        self._layouts = layouts
        self._most = most
        self._at: dict[int, Shelf] = {}
        self._spare: list[Shelf] = []

    def of(self, row: int) -> Shelf | None:
        """Where the state of a row is; None: it has none."""
        return self._at.get(row)

    def put(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write a row's state in place of what it has."""
        self.remove(row)
        widths = tuple(tensor.shape[len(layout.outer)] for tensor, layout in zip(tensors, self._layouts, strict=True))
        shelf = next((shelf for shelf in self._at.values() if shelf.widths == widths), None) or self._new(widths)
        shelf.put(row, tensors)
        self._at[row] = shelf

    def remove(self, row: int) -> None:
        """Let go of a row's state, if it has one."""
        shelf = self._at.pop(row, None)
        if shelf is None:
            return
        shelf.remove(row)
        if shelf.empty:
            self._spare = [shelf, *self._spare[: SPARE - 1]]

    def move(self, source: int, target: int) -> None:
        """Call a row by another number."""
        shelf = self._at.pop(source, None)
        if shelf is not None:
            shelf.rename(source, target)
            self._at[target] = shelf

    def trim(self) -> None:
        """Give back the memory of shelves without rows."""
        self._spare.clear()

    def close(self) -> None:
        """Forget all rows and their memory."""
        self._at.clear()
        self._spare.clear()

    @property
    def nbytes(self) -> int:
        """Bytes of all shelves; any thread may ask."""
        shelves = {id(shelf): shelf for shelf in [*self._spare, *list(self._at.values())]}
        return sum(shelf.nbytes for shelf in shelves.values())

    def _new(self, widths: tuple[int, ...]) -> Shelf:
        shelf = self._spare.pop() if self._spare else Shelf(self._layouts, self._most)
        shelf.prepare(widths)
        return shelf

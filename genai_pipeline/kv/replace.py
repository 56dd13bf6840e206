"""Recurrent and convolution state: a run reads all of it and gives all of it back, however many tokens it takes.

Such a state has no tokens to cut off: it is known at the lengths where it was kept, and nowhere between. So a commit
takes all tokens of a run, and a row can be saved and truncated only at its boundaries: 0, its own length and its
snapshots. What a run gives goes into a second buffer that becomes the state at ``commit``; a run that fails or is
not committed leaves the old state as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.blocks import NOBODY, Block, Blocks, DoubleBuffer
from genai_pipeline.kv.geometry import SNAPSHOTS
from genai_pipeline.kv.storage import StateStorage
from genai_pipeline.types import numpy_dtype

State = list[NDArray[Any]]  # one array per tensor, without the batch axis; never written again


@dataclass(slots=True)
class _Row:
    """How far a live row is, and the states it kept on the way, by length."""

    length: int = 0
    snapshots: dict[int, State] = field(default_factory=dict)


class ReplaceStorage(StateStorage):
    """Rows of the update ``replace``."""

    def __init__(self, plan: StatePlan) -> None:
        self._layouts = [_Layout.of(tensor, plan.initial) for tensor in plan.tensors]
        self._blocks = Blocks(lambda rows: self._new())
        self._rows: dict[int, _Row] = {}
        self._pending: tuple[_Block, list[int]] | None = None  # what the last bind prepared: the lengths it leads to

    @property
    def whole(self) -> bool:
        """The state is one piece."""
        return True

    @property
    def uneven(self) -> bool:
        """Padding after a row's tokens would run into its state."""
        return False

    def boundaries(self, row: int) -> frozenset[int]:
        """0, the committed length and the snapshots."""
        live = self._rows[row]
        return frozenset({0, live.length, *live.snapshots})

    def snapshot(self, row: int) -> None:
        """Keep a copy of the state as it is now; of more than ``SNAPSHOTS`` the oldest go."""
        live = self._rows[row]
        if live.length not in live.snapshots:
            live.snapshots[live.length] = self._state(row)
            for length in sorted(live.snapshots.keys() - {0})[:-SNAPSHOTS]:  # the start is not one of them
                del live.snapshots[length]

    def open(self, row: int) -> None:
        """Give an empty row, in its initial state, to a sequence."""
        self._blocks.open(row)
        self._rows[row] = _Row()

    def set(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Let an empty row start as what another component gave; it comes back to that."""
        live = self._rows[row]
        assert not live.length, "it starts once"
        live.snapshots[0] = [np.array(tensor) for tensor in tensors]
        self._restore(row, live.snapshots[0])

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the rows' states as past and a second buffer as present; same rows, same order: nothing is copied."""
        assert [self._rows[row].length for row in rows] == list(lengths)
        block = self._blocks.together(rows)
        if block is None:
            block = self._blocks.claim(rows)
            self._blocks.fill(block, rows)
        for tensor, layout in zip(block.tensors, self._layouts, strict=True):
            shape = layout.shape(len(rows))
            tensor.bind(binding, shape, shape)
        self._pending = (block, [length + count for length, count in zip(lengths, new, strict=True)])
        return max(lengths)

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """The present of the last run is the state. All of its tokens count: this state cannot drop the last ones."""
        assert self._pending is not None
        block, stops = self._pending
        assert block.rows == list(rows)
        assert list(lengths) == stops, f"a run to {stops} tokens cannot be committed up to {list(lengths)}"
        self._pending = None
        for tensor in block.tensors:
            tensor.swap()
        for row, length in zip(rows, lengths, strict=True):
            self._rows[row].length = length

    def truncate(self, row: int, length: int) -> None:
        """Go back to 0 or a snapshot; later snapshots are forgotten."""
        live = self._rows[row]
        if length == live.length:
            return
        if length in live.snapshots:
            self._restore(row, live.snapshots[length])
        else:
            assert not length, f"the state of row {row} at {length} is not known"
            self._blocks.leave(row)
        live.length = length
        live.snapshots = {at: state for at, state in live.snapshots.items() if at <= length}

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        self._blocks.move(source, target)
        self._rows[target] = self._rows.pop(source)

    def release(self, row: int) -> None:
        """End a row; its block goes with the last of its rows."""
        self._blocks.release(row)
        del self._rows[row]

    def save(self, row: int, start: int, stop: int) -> State:
        """The state at ``stop``, a boundary: one array per tensor, without the batch axis."""
        live = self._rows[row]
        assert stop in self.boundaries(row), f"the state of row {row} at {stop} is not known"
        if stop == live.length:
            return self._state(row)
        if stop not in live.snapshots:
            return [layout.empty() for layout in self._layouts]
        return [tensor.copy() for tensor in live.snapshots[stop]]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Take over the state at ``stop``; snapshots after ``start`` are forgotten, as other tokens may follow it."""
        live = self._rows[row]
        assert start <= live.length
        self._restore(row, tensors)
        live.length = stop
        live.snapshots = {at: state for at, state in live.snapshots.items() if at <= start}

    def trim(self) -> None:
        """Give back the memory of blocks without rows."""
        self._blocks.spare.clear()

    def resident_bytes(self) -> int | None:
        """Bytes of all blocks and snapshots."""
        # another thread may ask while the engine's opens and ends rows
        kept = (
            tensor for row in list(self._rows.values()) for state in list(row.snapshots.values()) for tensor in state
        )
        return self._blocks.nbytes + sum(tensor.nbytes for tensor in kept)

    def close(self) -> None:
        """Give all memory back."""
        self._blocks.close()
        self._rows.clear()
        self._pending = None

    def _new(self) -> _Block:
        return self._blocks.spare.pop() if self._blocks.spare else _Block(self._layouts)

    def _state(self, row: int) -> State:
        """A copy of a row's state."""
        found = self._blocks.find(row)
        if found is None:
            return [layout.empty() for layout in self._layouts]
        block, slot = found
        return [tensor[slot].copy() for tensor in block.states()]

    def _restore(self, row: int, state: Sequence[NDArray[Any]]) -> None:
        """Put a state into a block of the row's own."""
        block = self._new()
        block.resize(1)
        block.rows[0] = row
        for tensor, saved in zip(block.states(), state, strict=True):
            tensor[0] = saved
        self._blocks.adopt(block)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A state tensor: its sizes without the batch axis, where that axis is, and the value an empty row has."""

    tensor: StateTensor
    dtype: np.dtype[Any]
    sizes: tuple[int, ...]
    axis: int
    initial: float

    @staticmethod
    def of(tensor: StateTensor, initial: float) -> _Layout:
        """The layout of a tensor whose axis "batch" is named."""
        axis = tensor.shape.index("batch")
        sizes = tuple(dim for dim in tensor.shape if isinstance(dim, int))
        assert len(sizes) == len(tensor.shape) - 1, tensor
        return _Layout(tensor, numpy_dtype(tensor.dtype), sizes, axis, initial)

    def shape(self, batch: int) -> tuple[int, ...]:
        """The port's shape for ``batch`` rows."""
        return (*self.sizes[: self.axis], batch, *self.sizes[self.axis :])

    def size(self, batch: int) -> int:
        """Elements of ``batch`` rows."""
        return batch * math.prod(self.sizes)

    def rows(self, flat: NDArray[Any], batch: int) -> NDArray[Any]:
        """A view of flat memory with the rows first: [batch, *sizes]."""
        return np.moveaxis(flat[: self.size(batch)].reshape(self.shape(batch)), self.axis, 0)

    def empty(self) -> NDArray[Any]:
        """The state of an empty row."""
        return np.full(self.sizes, self.initial, self.dtype)


class _Block(Block):
    """States side by side; where the batch is not the first axis, a change of their number moves all of them."""

    def __init__(self, layouts: Sequence[_Layout]) -> None:
        super().__init__()
        self._layouts = layouts
        self.tensors = [DoubleBuffer(layout.tensor) for layout in layouts]

    @property
    def nbytes(self) -> int:
        """Bytes of all its buffers."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def resize(self, slots: int) -> None:
        """See Block.resize."""
        old = len(self.rows)
        kept = min(slots, old)
        for tensor, layout in zip(self.tensors, self._layouts, strict=True):
            if layout.axis == 0:
                tensor.past.reserve(layout.size(slots), layout.size(kept))
            elif slots != old:
                tensor.present.reserve(layout.size(slots))
                there, here = layout.rows(tensor.present.array, slots), layout.rows(tensor.past.array, old)
                there[:kept] = here[:kept]
                tensor.swap()
        self.rows[kept:] = [NOBODY] * (slots - kept)

    def clear(self, slot: int) -> None:
        """See Block.clear."""
        for rows, layout in zip(self.states(), self._layouts, strict=True):
            rows[slot] = layout.initial

    def take(self, slot: int, source: Self, source_slot: int) -> None:
        """See Block.take."""
        for rows, others in zip(self.states(), source.states(), strict=True):
            rows[slot] = others[source_slot]

    def states(self) -> list[NDArray[Any]]:
        """Views of the past of all rows, one per tensor: [b, *sizes]."""
        count = len(self.rows)
        return [
            layout.rows(tensor.past.array, count) for tensor, layout in zip(self.tensors, self._layouts, strict=True)
        ]

"""State that is written once and read by every later run, e.g. keys and values of cross-attention.

Where the component itself gives it, the run of a row's first tokens does: its past is empty and its present is kept;
later runs read that as past and their present is of no interest. Where another component gives it, it is ``set``
before the first run. Its length has nothing to do with the number of tokens: rows share a run when their states have
equal shapes (``batch_key``), as only the graph could tell padding from state.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.blocks import NOBODY, Block, Blocks, Memory
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.storage import StateStorage

UNWRITTEN: Hashable = ("unwritten",)  # the batch key of rows whose first run is still to come


class FixedStorage(StateStorage):
    """Rows of the update ``fixed``."""

    def __init__(self, plan: StatePlan, max_rows: int = 1) -> None:
        self._captures = plan.source is None
        self._max_rows = max_rows
        assert not self._captures or all(tensor.present is not None for tensor in plan.tensors)
        self._layouts = [TensorLayout.of(tensor) for tensor in plan.tensors]
        self._blocks = Blocks(self._block_for)
        self._capturing: Binding | None = None  # of the last bind, when its run writes the state

    @property
    def whole(self) -> bool:
        """The state is one piece."""
        return True

    def batch_key(self, row: int) -> Hashable:
        """The lengths of the state's tensors."""
        found = self._blocks.find(row)
        return UNWRITTEN if found is None else found[0].widths

    def open(self, row: int) -> None:
        """Give a row without state to a sequence."""
        self._blocks.open(row)

    def set(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write the state that another component gave: one array per tensor, without the batch axis."""
        assert self._blocks.find(row) is None, "it is written once"
        self._write([row], [tensor[None] for tensor in tensors])

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the state as past, or nothing as past and the runtime's memory as present for rows that write it now."""
        assert len({self.batch_key(row) for row in rows}) == 1, "rows of one run have states of equal shapes"
        self._capturing = None
        if self._blocks.find(rows[0]) is None:
            assert self._captures, "the state is set before the first run"
            self._bind_first(binding, len(rows))
            return max(lengths)
        block = self._blocks.together(rows)
        if block is None:
            block = self._blocks.claim(rows)
            self._blocks.fill(block, rows)
        for memory, layout, width in zip(block.memories, self._layouts, block.widths, strict=True):
            binding.bind_input(layout.tensor.past, memory.buffer.shaped(layout.shape(len(rows), width)))
        return max(lengths)

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Keep what a first run wrote; other runs change nothing."""
        if self._capturing is None:
            return
        self._write(rows, [self._capturing.output(layout.tensor.present or "") for layout in self._layouts])
        self._capturing = None

    def truncate(self, row: int, length: int) -> None:
        """The state stays, unless the row starts anew and its first run will write it again."""
        if length == 0 and self._captures:
            self._blocks.leave(row)

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        self._blocks.move(source, target)

    def release(self, row: int) -> None:
        """End a row; its block goes with the last of its rows."""
        self._blocks.release(row)

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of the state: one array per tensor, without the batch axis, of length 0 before the first run."""
        found = self._blocks.find(row)
        if found is None:
            return [np.empty(layout.shape(1, 0)[1:], layout.dtype) for layout in self._layouts]
        block, slot = found
        return [rows[slot].copy() for rows in block.states()]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Take over a saved state; a row of no tokens that captures its own has none."""
        if stop or not self._captures:
            self._write([row], [tensor[None] for tensor in tensors])
        else:
            self._blocks.leave(row)

    def graft(self, source: int, target: int, start: int, stop: int) -> None:
        """What was written by the first of the tokens that both have is the same."""
        if not start:
            super().graft(source, target, start, stop)

    def trim(self) -> None:
        """Give back the memory of blocks without rows."""
        self._blocks.spare.clear()

    def resident_bytes(self) -> int | None:
        """Bytes of all blocks."""
        return self._blocks.nbytes

    def close(self) -> None:
        """Give all memory back."""
        self._blocks.close()
        self._capturing = None

    def _bind_first(self, binding: Binding, count: int) -> None:
        for layout in self._layouts:
            nothing = Memory(layout.dtype).buffer
            binding.bind_input(layout.tensor.past, nothing.shaped(layout.shape(count, 0)))
            binding.bind_output(layout.tensor.present or "", None)
        self._capturing = binding

    def _block_for(self, rows: Sequence[int]) -> _Block:
        found = self._blocks.find(rows[0])
        assert found is not None
        return self._new(found[0].widths)

    def _new(self, widths: tuple[int, ...]) -> _Block:
        block = self._blocks.spare.pop() if self._blocks.spare else _Block(self._layouts, self._max_rows)
        block.widths = widths
        return block

    def _write(self, rows: Sequence[int], tensors: Sequence[NDArray[Any]]) -> None:
        """Put the states of rows, [b, ...] per tensor, into a block of their own."""
        widths = tuple(
            tensor.shape[1 + len(layout.outer)] for tensor, layout in zip(tensors, self._layouts, strict=True)
        )
        block = self._new(widths)
        block.resize(len(rows))
        block.rows[:] = rows
        for own, tensor in zip(block.states(), tensors, strict=True):
            assert own.shape == tensor.shape
            own[...] = tensor
        self._blocks.adopt(block)


class _Block(Block):
    """States of equal shapes side by side; ``widths`` are their lengths, one per tensor.

    A block that gets a second row takes the address space of ``most`` rows at once: memory costs nothing before it is
    written, and copying large states into new memory whenever a row joins would hold up the decode rows.
    """

    def __init__(self, layouts: Sequence[TensorLayout], most: int) -> None:
        super().__init__()
        self._most = most
        self._written = [0] * len(layouts)  # elements of each memory that were ever used
        self.widths: tuple[int, ...] = (0,) * len(layouts)
        self._layouts = layouts
        self.memories = [Memory(layout.dtype) for layout in layouts]

    @property
    def nbytes(self) -> int:
        """Bytes of all its memory."""
        return sum(memory.array.itemsize * used for memory, used in zip(self.memories, self._written, strict=True))

    def resize(self, slots: int) -> None:
        """See Block.resize."""
        kept = min(slots, len(self.rows))
        room = slots if slots < 2 else max(slots, self._most)
        for index, (memory, shape) in enumerate(zip(self.memories, self._shapes(), strict=True)):
            memory.reserve(room * math.prod(shape), kept * math.prod(shape))
            self._written[index] = max(self._written[index], slots * math.prod(shape))
        self.rows[kept:] = [NOBODY] * (slots - kept)

    def clear(self, slot: int) -> None:
        """Rows without state share no block with others."""
        raise AssertionError("a row joins a batch before its state is written")

    def take(self, slot: int, source: Self, source_slot: int) -> None:
        """See Block.take."""
        for rows, others in zip(self.states(), source.states(), strict=True):
            rows[slot] = others[source_slot]

    def states(self) -> list[NDArray[Any]]:
        """Views of the states of all rows, one per tensor: [b, *outer, width, *inner]."""
        count = len(self.rows)
        return [
            memory.array[: count * math.prod(shape)].reshape(count, *shape)
            for memory, shape in zip(self.memories, self._shapes(), strict=True)
        ]

    def _shapes(self) -> list[tuple[int, ...]]:
        return [layout.shape(1, width)[1:] for layout, width in zip(self._layouts, self.widths, strict=True)]

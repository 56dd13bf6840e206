"""State of graphs that return present = past + new: rows of one batch share a block, padded on the left.

A block is [b, *outer, P, *inner]: row i has its tokens at the end, before them padding that the mask hides. While
the same rows run together, the present of one run is the past of the next without a copy, in two buffers that take
turns. A row that joins or leaves is copied alone (``blocks``), and so is one whose last run was not committed in full;
all rows are copied when a longer one joins, or when what all of them are padded by exceeds a bound. A row that runs
alone has no padding: its results are those of a sequence that was never in company.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.blocks import NOBODY, Block, Blocks, DoubleBuffer
from genai_pipeline.kv.geometry import PAGE_TOKENS, TensorLayout
from genai_pipeline.kv.storage import StateStorage

PADDING = 8  # a block may be wider than its longest row by a page or one part in so many of it


class AppendStorage(StateStorage):
    """Rows of the update ``append``, up to ``capacity`` tokens each."""

    def __init__(self, plan: StatePlan, *, capacity: int) -> None:
        assert all(tensor.present is not None for tensor in plan.tensors)
        self._layouts = [TensorLayout.of(tensor) for tensor in plan.tensors]
        self._capacity = capacity
        self._blocks = Blocks(self._block_for)
        self._pending: tuple[_Block, int] | None = None  # what the last bind prepared, and how many tokens it adds

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """Shorter rows are padded before their first token."""
        return "left"

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""
        self._blocks.open(row)

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the rows' block as past and its other buffers, ``max(new)`` tokens longer, as present."""
        longest, added = max(lengths), max(new)
        assert longest + added <= self._capacity or len(rows) > 1
        block = self._blocks.together(rows)
        if block is None:
            block = self._blocks.claim(rows)
            block.fit(longest, len(rows))
            self._blocks.fill(block, rows)
        elif not block.fits(longest, len(rows)):
            block.fit(longest, len(rows))
        block.align()
        assert block.lengths == list(lengths)
        width, count = block.width, len(rows)
        for tensor, layout in zip(block.tensors, self._layouts, strict=True):
            tensor.bind(binding, layout.shape(count, width), layout.shape(count, width + added))
        self._pending = (block, added)
        return width

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """The present of the last run is the past of the next; rows keep ``lengths`` tokens of it."""
        assert self._pending is not None
        block, added = self._pending
        assert block.rows == list(rows)
        self._pending = None
        block.advance(added, lengths)

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on."""
        found = self._blocks.find(row)
        if found is not None:
            block, slot = found
            block.keep(slot, length)
        else:
            assert length == 0

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        self._blocks.move(source, target)

    def release(self, row: int) -> None:
        """End a row; its block goes with the last of its rows."""
        self._blocks.release(row)

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop), each [tokens, *outer, *inner]."""
        tokens = self._tokens(row)
        assert 0 <= start <= stop <= len(tokens[0])
        return [tensor[start:stop].copy() for tensor in tokens]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write saved tokens [start, stop) and commit them, in a block of the row's own."""
        before = self._tokens(row)
        assert start <= len(before[0])
        assert len(tensors[0]) == stop - start
        assert stop <= self._capacity
        block = self._new(stop)
        block.resize(1)
        block.rows[0] = row
        block.put(0, stop, [(old[:start], saved) for old, saved in zip(before, tensors, strict=True)])
        self._blocks.adopt(block)

    def trim(self) -> None:
        """Give back the memory of blocks without rows."""
        self._blocks.spare.clear()

    def resident_bytes(self) -> int | None:
        """Bytes of all blocks, both buffers of each tensor."""
        return self._blocks.nbytes

    def close(self) -> None:
        """Give all memory back."""
        self._blocks.close()
        self._pending = None

    def _block_for(self, rows: Sequence[int]) -> _Block:
        return self._new(max(self._length(row) for row in rows))

    def _new(self, width: int) -> _Block:
        block = self._blocks.spare.pop() if self._blocks.spare else _Block(self._layouts)
        block.width = width
        return block

    def _length(self, row: int) -> int:
        found = self._blocks.find(row)
        return 0 if found is None else found[0].lengths[found[1]]

    def _tokens(self, row: int) -> list[NDArray[Any]]:
        """Views of a row's tokens, one per tensor, each [length, *outer, *inner]."""
        found = self._blocks.find(row)
        if found is None:
            return [np.empty((0, *layout.outer, *layout.inner), layout.dtype) for layout in self._layouts]
        return found[0].row(found[1])


class _Block(Block):
    """Rows padded to ``width``; slot i has ``lengths[i]`` tokens that end at ``ends[i]``, at ``width`` once aligned."""

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        super().__init__()
        self.width = 0
        self.lengths: list[int] = []
        self.ends: list[int] = []
        self.tensors = [DoubleBuffer(layout.tensor) for layout in layouts]
        self._layouts = layouts

    @property
    def nbytes(self) -> int:
        """Bytes of all its buffers."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def resize(self, slots: int) -> None:
        """See Block.resize."""
        kept, more = min(slots, len(self.rows)), max(0, slots - len(self.rows))
        for tensor, layout in zip(self.tensors, self._layouts, strict=True):
            tensor.past.reserve(slots * self._row_size(layout), kept * self._row_size(layout))
        self.rows[kept:] = [NOBODY] * more
        self.lengths[kept:] = [0] * more
        self.ends[kept:] = [self.width] * more

    def clear(self, slot: int) -> None:
        """See Block.clear."""
        self.put(slot, 0, [() for _ in self.tensors])

    def take(self, slot: int, source: Self, source_slot: int) -> None:
        """See Block.take."""
        self.put(slot, source.lengths[source_slot], [(tokens,) for tokens in source.row(source_slot)])

    def put(self, slot: int, length: int, tensors: Sequence[Sequence[NDArray[Any]]]) -> None:
        """Let a slot hold ``length`` tokens, given in pieces per tensor, and padding before them.

        Padding is zeros: even where a mask hides it, it must be finite, as 0 * nan is nan.
        """
        begin = self.width - length
        for i, pieces in enumerate(tensors):
            tokens, at = self._columns(slot, i), begin
            for piece in pieces:
                tokens[at : at + len(piece)] = piece
                at += len(piece)
            tokens[:begin] = 0
        self.lengths[slot], self.ends[slot] = length, self.width

    def row(self, slot: int) -> list[NDArray[Any]]:
        """Views of the tokens of a slot, one per tensor, each [length, *outer, *inner]."""
        span = slice(self.ends[slot] - self.lengths[slot], self.ends[slot])
        return [self._columns(slot, i)[span] for i in range(len(self.tensors))]

    def keep(self, slot: int, length: int) -> None:
        """Drop the last tokens of a slot."""
        assert 0 <= length <= self.lengths[slot]
        self.ends[slot] -= self.lengths[slot] - length
        self.lengths[slot] = length

    def advance(self, added: int, lengths: Sequence[int]) -> None:
        """Make the present, ``added`` tokens wider, the past; rows keep ``lengths`` tokens."""
        for slot, (old, length) in enumerate(zip(self.lengths, lengths, strict=True)):
            assert old <= length <= old + added
            self.ends[slot] += length - old
        self.lengths = list(lengths)
        self.width += added
        for tensor in self.tensors:
            tensor.swap()

    def fits(self, longest: int, slots: int) -> bool:
        """Whether rows of up to ``longest`` tokens have room and not too much padding."""
        spare = 0 if slots == 1 else max(PAGE_TOKENS, longest // PADDING)
        return longest <= self.width <= longest + spare

    def fit(self, longest: int, slots: int) -> None:
        """Copy all rows into a width of exactly ``longest`` tokens, unless the present one fits."""
        if self.fits(longest, slots):
            return
        rows = [self.row(slot) for slot in range(len(self.rows))]  # views of the old past
        self.width = longest
        for tensor, layout in zip(self.tensors, self._layouts, strict=True):
            tensor.present.reserve(len(rows) * self._row_size(layout))
            tensor.swap()
        for slot, tokens in enumerate(rows):
            if self.rows[slot] != NOBODY:
                self.put(slot, self.lengths[slot], [(tensor,) for tensor in tokens])

    def align(self) -> None:
        """Push rows that do not reach the end to it."""
        for slot, end in enumerate(self.ends):
            if end != self.width:
                self.put(slot, self.lengths[slot], [(tensor,) for tensor in self.row(slot)])

    def _row_size(self, layout: TensorLayout) -> int:
        return layout.stripes * self.width * (layout.stripe_token_bytes // layout.dtype.itemsize)

    def _columns(self, slot: int, index: int) -> NDArray[Any]:
        """A view of one slot of one tensor with the tokens first: [width, *outer, *inner]."""
        layout = self._layouts[index]
        size = self._row_size(layout)
        row = self.tensors[index].past.array[slot * size : (slot + 1) * size]
        return np.moveaxis(row.reshape(layout.shape(1, self.width)[1:]), len(layout.outer), 0)

"""State that is written once and read by every later run, e.g. keys and values of cross-attention.

Where the component itself gives it, the run of a row's first tokens does: its past is empty and its present is kept;
later runs read that as past and their present is of no interest. Where another component gives it, it is ``set``
before the first run. Its length has nothing to do with the number of tokens: rows share a run when their states have
equal shapes (``batch_key``), as only the graph could tell padding from state.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.blocks import Memory
from genai_pipeline.kv.geometry import TensorLayout
from genai_pipeline.kv.shelf import Shelves
from genai_pipeline.kv.storage import StateStorage

UNWRITTEN: Hashable = ("unwritten",)  # the batch key of rows whose first run is still to come


class FixedStorage(StateStorage):
    """Rows of the update ``fixed``."""

    def __init__(self, plan: StatePlan, max_rows: int = 1) -> None:
        self._captures = plan.source is None
        assert not self._captures or all(tensor.present is not None for tensor in plan.tensors)
        self._layouts = [TensorLayout.of(tensor) for tensor in plan.tensors]
        self._shelves = Shelves(self._layouts, max_rows)
        self._open: set[int] = set()
        self._capturing: Binding | None = None  # of the last bind, when its run writes the state

    @property
    def whole(self) -> bool:
        """The state is one piece."""
        return True

    def batch_key(self, row: int) -> Hashable:
        """The lengths of the state's tensors."""
        shelf = self._shelves.of(row)
        return UNWRITTEN if shelf is None else shelf.widths

    def open(self, row: int) -> None:
        """Give a row without state to a sequence."""
        assert row not in self._open, f"row {row} is taken"
        self._open.add(row)

    def set(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write the state that another component gave: one array per tensor, without the batch axis."""
        assert row in self._open
        assert self._shelves.of(row) is None, "it is written once"
        self._shelves.put(row, tensors)

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the state as past, or nothing as past and the runtime's memory as present for rows that write it now."""
        assert len({self.batch_key(row) for row in rows}) == 1, "rows of one run have states of equal shapes"
        self._capturing = None
        shelf = self._shelves.of(rows[0])
        if shelf is None:
            assert self._captures, "the state is set before the first run"
            self._bind_first(binding, len(rows))
            return max(lengths)
        for layout, buffer in zip(self._layouts, shelf.together(rows), strict=True):
            binding.bind_input(layout.tensor.past, buffer)
        return max(lengths)

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """Keep what a first run wrote; other runs change nothing."""
        if self._capturing is None:
            return
        written = [self._capturing.output(layout.tensor.present or "") for layout in self._layouts]
        for place, row in enumerate(rows):
            self._shelves.put(row, [tensor[place] for tensor in written])
        self._capturing = None

    def truncate(self, row: int, length: int) -> None:
        """The state stays, unless the row starts anew and its first run will write it again."""
        if length == 0 and self._captures:
            self._shelves.remove(row)

    def move(self, source: int, target: int) -> None:
        """Call a live row by another number."""
        assert target not in self._open, f"row {target} is taken"
        self._open.remove(source)
        self._open.add(target)
        self._shelves.move(source, target)

    def release(self, row: int) -> None:
        """End a row."""
        self._shelves.remove(row)
        self._open.remove(row)

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of the state: one array per tensor, without the batch axis, of length 0 before the first run."""
        shelf = self._shelves.of(row)
        if shelf is None:
            return [np.empty(layout.shape(1, 0)[1:], layout.dtype) for layout in self._layouts]
        return [tensor.copy() for tensor in shelf.state(row)]

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Take over a saved state; a row of no tokens that captures its own has none."""
        if stop or not self._captures:
            self._shelves.put(row, tensors)
        else:
            self._shelves.remove(row)

    def graft(self, source: int, target: int, start: int, stop: int) -> None:
        """What was written by the first of the tokens that both have is the same."""
        if not start:
            super().graft(source, target, start, stop)

    def trim(self) -> None:
        """Give back the memory of shelves without rows."""
        self._shelves.trim()

    def resident_bytes(self) -> int | None:
        """Bytes of all shelves."""
        return self._shelves.nbytes

    def close(self) -> None:
        """Give all memory back."""
        self._shelves.close()
        self._open.clear()
        self._capturing = None

    def _bind_first(self, binding: Binding, count: int) -> None:
        for layout in self._layouts:
            nothing = Memory(layout.dtype).buffer
            binding.bind_input(layout.tensor.past, nothing.shaped(layout.shape(count, 0)))
            binding.bind_output(layout.tensor.present or "", None)
        self._capturing = binding

"""State whose rows have fixed places side by side: a batch is a range of rows, bound once while it stays the same."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal
from weakref import WeakKeyDictionary

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.kv.storage import StateStorage


class RowRanges(StateStorage):
    """The lengths of rows [0, max_rows) of ``capacity`` tokens; where the memory is, those who derive know."""

    def __init__(self, *, max_rows: int, capacity: int) -> None:
        self._capacity = capacity
        self._lengths: dict[int, int] = {}  # live rows
        self._touched = [0] * max_rows  # tokens whose memory may have been written, of ended rows too
        self._bound: WeakKeyDictionary[Binding, tuple[int, int]] = WeakKeyDictionary()

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """Rows are padded at the end: each has its own length in the buffer."""
        return "right"

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""
        assert row not in self._lengths, f"row {row} is taken"
        self._lengths[row] = 0

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind the rows, which must be consecutive, unless they are bound already."""
        first, count = rows[0], len(rows)
        end = max(lengths) + max(new)  # of the longest row with the padding of the batch
        assert end <= self._capacity or count > 1
        self._touch(rows, min(end, self._capacity))
        if self._bound.get(binding) != (first, count):
            assert list(rows) == list(range(first, first + count)), f"rows {rows} are not consecutive"
            self._bind_range(binding, first, count)
            self._bound[binding] = (first, count)
        return max(lengths)

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """The rows now hold ``lengths`` tokens."""
        for row, length in zip(rows, lengths, strict=True):
            assert 0 <= length <= self._touched[row]
            assert row in self._lengths
            self._lengths[row] = length

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on; the next run writes over it."""
        assert length <= self._lengths[row]
        self._lengths[row] = length

    @abstractmethod
    def _bind_range(self, binding: Binding, first: int, count: int) -> None:
        """Bind past and present of every tensor to the rows [first, first + count)."""

    def _touch(self, rows: Sequence[int], end: int) -> None:
        for row in rows:
            if self._touched[row] < end:
                self._touched[row] = end

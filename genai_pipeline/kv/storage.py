"""The protocol of state storage: who keeps what a sequence's graphs remember, one storage per state entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding


class StateStorage(Protocol):
    """State of one entry for up to ``max_rows`` sequences, each owning a row from ``open`` to ``release``.

    What lies beyond a row's committed length is scratch: a run may write there, and only ``commit`` makes it count.
    """

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """On which side ragged rows are padded, hence where a mask has its zeros."""

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind past and present ports for a run over ``rows``: row i has ``lengths[i]`` tokens and takes ``new[i]``.

        Returns P, the tokens of past that every row is padded to: row i has its past at [P - lengths[i], P) where
        padding is on the left, at [0, lengths[i]) where it is on the right. Cheap when the same rows are bound to the
        same binding again.
        """

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """After a successful run: the rows now hold ``lengths`` tokens (less than were run: the rest is dropped)."""

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on."""

    def move(self, source: int, target: int) -> None:
        """Move a live row into a free one; ``source`` becomes free."""

    def release(self, row: int) -> None:
        """End a row; its memory may be kept warm up to a bound."""

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop) of a row: one array [tokens, ...] per state tensor, so pages are slices."""

    def load(self, row: int, start: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write what ``save`` gave into a row from token ``start`` on and commit it; what lay beyond is forgotten."""

    def trim(self) -> None:
        """Give back the memory that free rows keep warm."""

    def resident_bytes(self) -> int | None:
        """Bytes of memory really held; None where the system does not say. Too slow for every step."""

    def close(self) -> None:
        """Give all memory back. No binding may run with it any more."""

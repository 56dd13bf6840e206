"""The protocol of state storage: who keeps what a sequence's graphs remember, one storage per state entry."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding


class StateStorage(Protocol):
    """State of one entry for up to ``max_rows`` sequences, each owning a row from ``open`` to ``release``.

    What lies beyond a row's committed length is scratch: a run may write there, and only ``commit`` makes it count.
    The members with a body say what holds for states that keep every token; the others override them.
    """

    @property
    def pad_side(self) -> Literal["left", "right"] | None:
        """On which side ragged rows are padded, hence where a mask has its zeros; None: there is nothing to pad."""
        return None

    @property
    def whole(self) -> bool:
        """Whether the state is one piece: ``save`` gives it as it is at ``stop``, not tokens to cut into pages."""
        return False

    @property
    def uneven(self) -> bool:
        """Whether the rows of one run may take different numbers of new tokens, padded at the end."""
        return True

    def boundaries(self, row: int) -> frozenset[int] | None:
        """Lengths at which a row can be saved and truncated to; None: any, up to its own."""
        return None

    def snapshot(self, row: int) -> None:
        """Keep the state as it is now, so that the committed length stays a boundary while the row goes on."""
        return

    def batch_key(self, row: int) -> Hashable:
        """Rows with different keys must not share a run; () when nothing matters."""
        return ()

    def open(self, row: int) -> None:
        """Give an empty row to a sequence."""

    def set(self, row: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Let an empty row start as what another component gave: one array per tensor, without the batch axis."""
        raise AssertionError("only state that is written once or replaced starts as something")

    def bind(self, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bind past and present ports for a run over ``rows``: row i has ``lengths[i]`` tokens and takes ``new[i]``.

        Returns P, the tokens of past that every row is padded to: row i has its past at [P - lengths[i], P) where
        padding is on the left, at [0, lengths[i]) where it is on the right. Cheap when the same rows are bound to the
        same binding again.
        """

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """After a successful run: the rows now hold ``lengths`` tokens.

        Less than were run means that the rest is dropped, which a state without tokens cannot do.
        """

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on; ``length`` is a boundary."""

    def move(self, source: int, target: int) -> None:
        """Move a live row into a free one; ``source`` becomes free."""

    def release(self, row: int) -> None:
        """End a row; its memory may be kept warm up to a bound."""

    def save(self, row: int, start: int, stop: int) -> list[NDArray[Any]]:
        """Copies of tokens [start, stop) of a row, ``stop`` being a boundary: one array [tokens, ...] per state tensor.

        Pages are slices of them; of a ``whole`` state they are one array [...] per tensor, whatever ``start`` is.
        """

    def load(self, row: int, start: int, stop: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Write what ``save`` gave for [start, stop) into a row and commit it; what lay beyond is forgotten."""

    def fork(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` tokens of a row, a boundary, into an empty one."""
        self.load(target, 0, length, self.save(source, 0, length))

    def graft(self, source: int, target: int, start: int, stop: int) -> None:
        """Let a row with the same tokens before ``start`` go on as ``source`` does, up to ``stop``, its length."""
        self.load(target, start, stop, self.save(source, start, stop))

    def trim(self) -> None:
        """Give back the memory that free rows keep warm."""
        return

    def resident_bytes(self) -> int | None:
        """Bytes of memory really held; None where the system does not say. Too slow for every step."""

    def close(self) -> None:
        """Give all memory back. No binding may run with it any more."""

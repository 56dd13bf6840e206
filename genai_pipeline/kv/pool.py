"""The manager of one loop's state: owns rows and pages, and keeps the storages of all its components in step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding
from genai_pipeline.errors import CapacityError
from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import (
    PAGE_TOKENS,
    bytes_per_row,
    bytes_per_token,
    pages_for,
)
from genai_pipeline.kv.homes import HOST, StateHome, create_storages, pays_in_full, rows_that_fit
from genai_pipeline.kv.memory import overcommits
from genai_pipeline.kv.pages import PageLedger

SavedTokens = Mapping[str, Sequence[Sequence[NDArray[Any]]]]  # component -> state entry -> state tensor


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """What of a pool is in use now; ``resident_bytes`` None: the system does not say, or it is closed."""

    rows: int
    pages: int
    num_rows: int
    num_pages: int
    page_bytes: int
    resident_bytes: int | None


class KvPool:
    """State of up to ``max_rows`` sequences of one loop, each of up to ``capacity`` tokens.

    A sequence owns a row from ``open`` to ``release``. Before a run its pages are reserved, after it ``commit`` says
    how many tokens count; what lies beyond is scratch. ``budget_bytes`` bounds the pages of all rows together and what
    a row takes besides (None: enough for every row to be full). ``homes``: where the state of a component lives, on
    the host and in place if not said. Raises CapacityError when not even two pages fit.
    """

    def __init__(
        self,
        components: Mapping[str, Sequence[StatePlan]],
        *,
        max_rows: int,
        capacity: int,
        budget_bytes: int | None = None,
        homes: Mapping[str, StateHome] | None = None,
    ) -> None:
        homes = homes or {}
        states = [state for plans in components.values() for state in plans]
        self.capacity = capacity
        self.page_bytes = PAGE_TOKENS * bytes_per_token(states)
        self.row_bytes = bytes_per_row(states)
        max_rows, num_pages = _sizes(self.page_bytes, self.row_bytes, max_rows, capacity, budget_bytes)
        held = capacity  # tokens that a row has memory for
        if pays_in_full(components, homes, sparse=overcommits()):
            held = min(capacity, num_pages * PAGE_TOKENS)
            max_rows = max(1, min(max_rows, num_pages // pages_for(held)))
            max_rows = _fitting(max_rows, rows_that_fit(components, homes, held), held)
        self._ledger = PageLedger(max_rows, num_pages)
        self._storages = {
            name: create_storages(plans, max_rows, held, homes.get(name, HOST)) for name, plans in components.items()
        }
        self._flat = tuple(storage for storages in self._storages.values() for storage in storages)
        self._sides = {storage.pad_side for storage in self._flat} - {None}
        self._lengths: dict[int, int] = {}
        self._closed = False

    @property
    def pad_side(self) -> Literal["left", "right"]:
        """Where ragged rows are padded. Where components differ, rows of different lengths must not share a run."""
        return "left" if "left" in self._sides else "right"

    @property
    def ragged(self) -> bool:
        """Whether rows of different lengths may share a run."""
        return len(self._sides) < 2

    @property
    def uneven(self) -> bool:
        """Whether the rows of one run may take different numbers of new tokens."""
        return all(storage.uneven for storage in self._flat)

    @property
    def whole(self) -> Mapping[str, tuple[bool, ...]]:
        """Which entries of ``SavedTokens`` are one piece, the state at ``stop``, and not tokens to cut into pages."""
        return {name: tuple(storage.whole for storage in storages) for name, storages in self._storages.items()}

    @property
    def max_rows(self) -> int:
        """Sequences that may live at once."""
        return self._ledger.num_rows

    @property
    def num_pages(self) -> int:
        """Pages of the whole budget."""
        return self._ledger.num_pages

    @property
    def free_rows(self) -> int:
        """Rows nobody owns."""
        return self._ledger.free_rows

    @property
    def free_pages(self) -> int:
        """Pages nobody holds."""
        return self._ledger.free_pages

    def open(self) -> int | None:
        """Give the lowest free row to a sequence, empty; None when all are taken."""
        row = self._ledger.take()
        if row is not None:
            self._lengths[row] = 0
            for storage in self._flat:
                storage.open(row)
        return row

    def keeps(self, component: str) -> bool:
        """Whether a component has state."""
        return bool(self._storages.get(component))

    def start(self, row: int, component: str, entry: int, tensors: Sequence[NDArray[Any]]) -> None:
        """Let a state entry of an empty row start as what another component gave; see ``StateStorage.set``."""
        self._storages[component][entry].set(row, tensors)

    def length(self, row: int) -> int:
        """Committed tokens of a row."""
        return self._lengths[row]

    def batch_key(self, row: int) -> Hashable:
        """Rows with different keys must not share a run; () when nothing matters. It changes with what a row holds."""
        keys = [key for storage in self._flat if (key := storage.batch_key(row)) != ()]
        return tuple(keys) if self.ragged else (self._lengths[row], *keys)

    def boundaries(self, row: int) -> frozenset[int] | None:
        """Lengths at which every part of a row can be saved, forked or truncated to; None: any, up to its own."""
        found: frozenset[int] | None = None
        for storage in self._flat:
            part = storage.boundaries(row)
            found = part if found is None else found if part is None else found & part
        return found

    def snapshot(self, row: int) -> None:
        """Make the committed length a boundary that stays while the row goes on (see ``replace``: a few are kept)."""
        for storage in self._flat:
            storage.snapshot(row)

    def reserve(self, row: int, tokens: int) -> bool:
        """Make sure of the pages for ``tokens`` tokens in all; False, and nothing changed, if there are too few."""
        assert tokens <= self.capacity
        return self._ledger.reserve(row, tokens)

    def bind(
        self, component: str, binding: Binding, rows: Sequence[int], lengths: Sequence[int], new: Sequence[int]
    ) -> int:
        """Bind a component's state for a run over ``rows``; returns P, the past that every row is padded to."""
        width = max(lengths)
        for storage in self._storages.get(component, ()):
            width = max(width, storage.bind(binding, rows, lengths, new))
        return width

    def commit(self, rows: Sequence[int], lengths: Sequence[int]) -> None:
        """After a successful run of every component: the rows now hold ``lengths`` tokens, within their pages."""
        for row, length in zip(rows, lengths, strict=True):
            assert pages_for(length) <= self._ledger.held(row), f"row {row} holds too few pages for {length} tokens"
            self._lengths[row] = length
        for storage in self._flat:
            storage.commit(rows, lengths)

    def give_back_scratch(self, row: int) -> None:
        """Give back the pages beyond the committed length: what drafts that were wrong have left over."""
        self._ledger.shrink(row, self._lengths[row])

    def truncate(self, row: int, length: int) -> None:
        """Forget everything from token ``length`` on, a boundary, and give back its pages."""
        assert length <= self._lengths[row]
        for storage in self._flat:
            storage.truncate(row, length)
        self._lengths[row] = length
        self._ledger.shrink(row, length)

    def move(self, source: int, target: int) -> None:
        """Move a live row into a free one, which is what keeps the rows of a batch consecutive."""
        self._ledger.move(source, target)
        for storage in self._flat:
            storage.move(source, target)
        self._lengths[target] = self._lengths.pop(source)

    def release(self, row: int) -> None:
        """End a row: it and its pages are free."""
        for storage in self._flat:
            storage.release(row)
        del self._lengths[row]
        self._ledger.give_back(row)

    def save(self, row: int, start: int, stop: int) -> SavedTokens:
        """Copies of tokens [start, stop) of a row, of all components; ``stop`` is a boundary."""
        return {
            name: [storage.save(row, start, stop) for storage in storages] for name, storages in self._storages.items()
        }

    def load(self, row: int, start: int, stop: int, saved: SavedTokens) -> None:
        """Write saved tokens [start, stop) into a row, whose pages must be reserved, and commit them."""
        assert pages_for(stop) <= self._ledger.held(row)
        for name, storages in self._storages.items():
            for storage, tensors in zip(storages, saved[name], strict=True):
                storage.load(row, start, stop, tensors)
        self._lengths[row] = stop

    def fork(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` tokens, a boundary, into an empty row, whose pages must be reserved."""
        assert pages_for(length) <= self._ledger.held(target)
        for storage in self._flat:
            storage.fork(source, target, length)
        self._lengths[target] = length

    def graft(self, source: int, target: int, start: int, stop: int) -> None:
        """Let a row go on from token ``start`` as another does, up to ``stop``, which is that one's length.

        Their tokens before ``start`` are the same. The pages must be reserved.
        """
        assert pages_for(stop) <= self._ledger.held(target)
        for storage in self._flat:
            storage.graft(source, target, start, stop)
        self._lengths[target] = stop

    def trim(self) -> None:
        """Give back the memory that free rows keep warm."""
        for storage in self._flat:
            storage.trim()

    def usage(self) -> PoolUsage:
        """What is in use now. Reads the kernel's memory map: not for every step."""
        sizes = [None if self._closed else storage.resident_bytes() for storage in self._flat]
        ledger = self._ledger
        return PoolUsage(
            rows=ledger.num_rows - ledger.free_rows,
            pages=ledger.num_pages - ledger.free_pages,
            num_rows=ledger.num_rows,
            num_pages=ledger.num_pages,
            page_bytes=self.page_bytes,
            resident_bytes=None if None in sizes else sum(size or 0 for size in sizes),
        )

    def close(self) -> None:
        """Give all memory back. No graph may run with it any more."""
        self._closed = True
        for storage in self._flat:
            storage.close()


def _fitting(max_rows: int, fitting: int | None, capacity: int) -> int:
    """Rows that a device has memory for."""
    if fitting is None:
        return max_rows
    if not fitting:
        raise CapacityError(
            f"the device has too little memory for one sequence of {capacity} tokens",
            hint="lower the context length or memory",
        )
    return min(max_rows, fitting)


_LEAST_PAGES = 2


def _sizes(page_bytes: int, row_bytes: int, max_rows: int, capacity: int, budget_bytes: int | None) -> tuple[int, int]:
    """Rows and pages that the budget pays for: a row of two pages at least, then as many rows as can begin."""
    per_row = pages_for(capacity)
    if budget_bytes is None:
        return max_rows, max_rows * per_row
    spare = budget_bytes - min(per_row, _LEAST_PAGES) * page_bytes
    if spare < row_bytes:
        raise CapacityError(
            f"{budget_bytes} bytes are too few for a cache: a sequence of {_LEAST_PAGES * PAGE_TOKENS} tokens takes "
            f"{_LEAST_PAGES * page_bytes + row_bytes}",
            hint="give more memory",
        )
    rows = min(max_rows, spare // row_bytes) if row_bytes else max_rows
    pages = (budget_bytes - rows * row_bytes) // page_bytes if page_bytes else rows * per_row
    return rows, min(pages, rows * per_row)

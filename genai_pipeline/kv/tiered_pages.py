"""Pages of a prefix tree across tiers: who makes room for whom, down to disk under pressure, back up on a hit.

Everything in host memory is counted against one budget: pages, whole states (what does not grow with tokens, kept with
the page after which it was taken), and bytes that others charge. Room is made from the least recently used end; nodes
used in the current call (those with the tree's own clock) are never taken, so a call cannot undo itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_codec import Column
from genai_pipeline.kv.page_memory import PageMemory
from genai_pipeline.kv.prefix_tree import Node, PrefixTree, Tier
from genai_pipeline.kv.saved import owned
from genai_pipeline.kv.tiers import DiskTier

Arrays = Sequence[NDArray[Any]]


@dataclass(slots=True)
class Moves:
    """How often pages moved or were dropped to make room."""

    evictions: int = 0
    demotions: int = 0
    promotions: int = 0


@dataclass(slots=True)
class _Whole:
    """A whole state: its arrays while they are in host memory, and what is needed to read them back."""

    arrays: list[NDArray[Any]] | None
    specs: list[tuple[np.dtype[Any], tuple[int, ...]]]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read: in a slot of host memory, or (``slot`` None) its columns; its whole state if it has one."""

    slot: int | None
    columns: Arrays
    whole: Arrays | None


class TieredPages:
    """Pages of these columns within ``budget_bytes`` of host memory, and what ``disk`` takes.

    ``whole_states``: a prefix is of use only up to a page that has a whole state, and pages after the last are dropped.
    """

    def __init__(
        self, columns: Sequence[Column], *, budget_bytes: int, whole_states: bool, disk: DiskTier | None
    ) -> None:
        self.tree = PrefixTree()
        self.moves = Moves()
        self.budget_bytes = budget_bytes
        self._columns = tuple(columns)
        self._memory = PageMemory(columns, budget_bytes)
        self._whole_states = whole_states
        self._disk = disk
        self._wholes: dict[Node, _Whole] = {}
        self._other_bytes = 0  # whole states in host memory, and what others charged

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in host memory."""
        return self._memory.slot_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of host memory in use."""
        return self._memory.used * self.page_bytes + self._other_bytes

    @property
    def resident_bytes(self) -> int:
        """The same with the freed pages that are kept warm: never more than the budget."""
        return self.nbytes + self._memory.warm * self.page_bytes

    def make_room(self, nbytes: int) -> bool:
        """Let the coldest pages go until so many bytes are free; False when what is left must stay."""
        if nbytes > self.budget_bytes:
            return False
        while self.nbytes + nbytes > self.budget_bytes:
            if not self._free_coldest():
                return False
        return True

    def charge(self, nbytes: int) -> bool:
        """Count bytes of others against the budget, making room; False, and nothing counted, if there is none."""
        if not self.make_room(nbytes):
            return False
        self._other_bytes += nbytes
        if self.page_bytes:
            self._memory.cool((self.budget_bytes - self.nbytes) // self.page_bytes)
        return True

    def uncharge(self, nbytes: int) -> None:
        """Undo a ``charge``."""
        self._other_bytes -= nbytes

    def take(self, count: int) -> list[int]:
        """Up to ``count`` free slots, making room for them."""
        slots: list[int] = []
        while len(slots) < count and self.make_room(self.page_bytes):
            slot = self._memory.take()
            assert slot is not None
            slots.append(slot)
        return slots

    def give(self, slots: Iterable[int]) -> None:
        """Give slots back that no page needs."""
        self._memory.give(slots)

    def write(self, slots: Sequence[int], columns: Arrays) -> None:
        """Fill slots: the columns hold the tokens of all of them."""
        self._memory.write(slots, columns)

    def view(self, first: int, length: int) -> list[NDArray[Any]]:
        """The columns of slots [first, first + length), valid until room is made."""
        return self._memory.view(first, length)

    def attach(self, node: Node, arrays: Arrays) -> bool:
        """Keep a whole state with a page in host memory; False if there is no room."""
        assert node.tier is Tier.HOST
        assert node not in self._wholes
        own = [owned(array) for array in arrays]
        nbytes = sum(array.nbytes for array in own)
        if not self.charge(nbytes):
            return False
        self._wholes[node] = _Whole(own, [(array.dtype, array.shape) for array in own], nbytes)
        return True

    def resumable(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The longest part of a chain that a sequence can resume from."""
        end = len(nodes)
        while self._whole_states and end and nodes[end - 1] not in self._wholes:
            end -= 1
        return nodes[:end]

    def read(self, nodes: Iterable[Node]) -> Iterator[Page]:
        """The pages of a chain, which must be touched, up to the first that is not to be had.

        Pages on disk come up while there are colder ones to take their place.
        """
        for node in nodes:
            if node.tier is Tier.HOST:
                whole = self._wholes.get(node)
                yield Page(node.handle, (), whole.arrays if whole else None)
                continue
            page = self._fetch(node) if node.tier is Tier.DISK else None
            if page is None:
                return
            yield page

    def forget(self, node: Node) -> None:
        """Drop a page and all that follow it, held or not."""
        parent = node.parent
        for gone, tier in self.tree.remove(node):
            if tier is Tier.HOST:
                self._memory.give((gone.handle,))
            else:
                assert self._disk is not None
                self._disk.free(gone.handle)
            self._drop_whole(gone)
        if self._whole_states and parent is not None and self._is_useless(parent):
            self.forget(parent)

    def clear(self) -> None:
        """Drop all pages, held ones too."""
        for node in list(self.tree.nodes()):
            if node.tier is not Tier.GONE:
                self.forget(node)
        self._memory.cool(0)

    def close(self) -> None:
        """Give all memory back."""
        self.clear()
        self._memory.close()

    def _drop_whole(self, node: Node) -> None:
        whole = self._wholes.pop(node, None)
        if whole is not None and whole.arrays is not None:
            self._other_bytes -= whole.nbytes

    def _is_useless(self, node: Node) -> bool:
        """Whether no sequence can resume from a page or beyond it."""
        busy = node.tier is Tier.ROOT or node.tier is Tier.GONE or node.refs or node.last_use == self.tree.clock
        return not busy and not node.children and node not in self._wholes

    def _free_coldest(self) -> bool:
        """Let one page leave host memory: to disk, or for good; False when all must stay."""
        free = self._cold(self.tree.coldest(Tier.HOST))
        if self._disk is not None:
            held = self._cold(self.tree.coldest(Tier.HOST, held=True))
            found = [node for node in (free, held) if node is not None]
            if found and self._demote(min(found, key=lambda node: node.last_use)):
                return True
        if free is None:
            return False
        self.moves.evictions += 1
        self.forget(free)
        return True

    def _cold(self, node: Node | None) -> Node | None:
        return None if node is None or node.last_use == self.tree.clock else node

    def _demote(self, node: Node) -> bool:
        """Move a page with its whole state to disk; False when it is not taken there."""
        assert self._disk is not None
        whole = self._wholes.get(node)
        parts = self.view(node.handle, 1) + (whole.arrays or [] if whole else [])
        if not self._make_disk_room(sum(part.nbytes for part in parts), node.last_use):
            return False
        if node.tier is not Tier.HOST:
            return True  # it was of no use any more without what had to make room
        handle = self._disk.write(parts)
        if handle is None:
            return False
        self._memory.give((node.handle,))
        self.tree.move(node, Tier.DISK, handle)
        if whole is not None:
            whole.arrays = None
            self._other_bytes -= whole.nbytes
        self.moves.demotions += 1
        return True

    def _make_disk_room(self, nbytes: int, last_use: int) -> bool:
        """Drop pages on disk that are no warmer than ``last_use`` until there is room."""
        assert self._disk is not None
        if nbytes > self._disk.bound_bytes:
            return False
        while not self._disk.fits(nbytes):
            victim = self.tree.coldest(Tier.DISK)
            if victim is None or victim.last_use > last_use:
                return False
            self.moves.evictions += 1
            self.forget(victim)
        return True

    def _fetch(self, node: Node) -> Page | None:
        """Read a page from disk, and move it up if there is room; None, and it is forgotten, if it cannot be read."""
        assert self._disk is not None
        data = self._disk.read(node.handle)
        if data is None:
            self.forget(node)
            return None
        whole = self._wholes.get(node)
        specs = [(column.dtype, (PAGE_TOKENS, *column.shape)) for column in self._columns]
        arrays = _unpack(data, specs + (whole.specs if whole else []))
        columns, state = arrays[: len(specs)], [array.copy() for array in arrays[len(specs) :]]
        assert node.parent is not None
        if node.parent.tier > Tier.HOST or not self.make_room(self.page_bytes + (whole.nbytes if whole else 0)):
            return Page(None, columns, state if whole else None)
        (slot,) = self.take(1)
        self.write([slot], columns)
        self._disk.free(node.handle)
        self.tree.move(node, Tier.HOST, slot)
        if whole is not None:
            whole.arrays = state
            counted = self.charge(whole.nbytes)
            assert counted, "room was made for it"
        self.moves.promotions += 1
        return Page(slot, (), whole.arrays if whole else None)


def _unpack(data: bytes, specs: Iterable[tuple[np.dtype[Any], tuple[int, ...]]]) -> list[NDArray[Any]]:
    """The arrays whose bytes lie one after another in ``data``, as views of it."""
    arrays = []
    start = 0
    for dtype, shape in specs:
        stop = start + math.prod(shape) * dtype.itemsize
        arrays.append(np.frombuffer(data[start:stop], np.uint8).view(dtype).reshape(shape))
        start = stop
    return arrays

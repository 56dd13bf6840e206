"""State outside the arenas: cached prefixes and the pages of idle sessions, shared by reference, and swapped sequences.

All of it is within one budget of host memory. Pages hang in a prefix tree; the least recently used leaves make room,
into files where there is a disk tier, else for good. What somebody holds is never dropped. State that does not grow
with tokens (recurrent, or computed once) is kept whole with the page after which it was taken: such loops resume only
there, with all their parts at that one boundary. One thread uses a store; others may read its usage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from genai_pipeline.graph.plan import StatePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_codec import ExactCodec, Int8Codec, PageCodec
from genai_pipeline.kv.page_memory import runs
from genai_pipeline.kv.pool import KvPool, SavedTokens
from genai_pipeline.kv.prefix_tree import Node, Tier
from genai_pipeline.kv.saved import SavedShape, owned
from genai_pipeline.kv.swap_space import Swapped, SwapSpace
from genai_pipeline.kv.tiered_pages import Arrays, Page, TieredPages
from genai_pipeline.kv.tiers import DiskTier

Nodes = tuple[Node, ...]
Read = Callable[[int, int], SavedTokens]  # (start, stop) -> the state of tokens [start, stop)

_READ_PAGES = 8  # read at a time into a store: the memory in between stays small and is used again
_PIECES = 4  # that a row is loaded in at most; scattered pages are joined before


@dataclass(frozen=True, slots=True)
class Match:
    """The longest kept prefix of a sequence: ``num_tokens`` is a multiple of 16, its pages are ``nodes``.

    Good until its pages make room for others, unless it is held; loading then gives less, never something else.
    """

    num_tokens: int
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class PageStoreUsage:
    """What a store holds now, and what happened since it was made. ``exact`` False: pages are rounded (int8)."""

    budget_bytes: int
    host_bytes: int  # pages, whole states and swapped sequences
    host_pages: int
    held_pages: int
    swapped: int
    swapped_bytes: int
    disk_pages: int
    disk_bytes: int
    exact: bool
    hits: int
    misses: int
    hit_tokens: int
    inserted_pages: int
    evictions: int
    demotions: int
    promotions: int
    disk_write_errors: int
    disk_read_errors: int


class PageStore:
    """Pages of one loop's state within ``budget_bytes`` of host memory; ``components`` as its pool has them.

    ``int8`` keeps pages as 8-bit integers, which is not exact; swapped sequences and whole states stay as they are.
    The store owns ``disk`` and closes it.
    """

    def __init__(
        self,
        components: Mapping[str, Sequence[StatePlan]],
        *,
        budget_bytes: int,
        int8: bool = False,
        disk: DiskTier | None = None,
    ) -> None:
        self._shape = SavedShape(components)
        self._codec: PageCodec = (Int8Codec if int8 else ExactCodec)(self._shape.growing)
        self._pages = TieredPages(
            self._codec.columns, budget_bytes=budget_bytes, whole_states=self._shape.has_whole, disk=disk
        )
        self._tree = self._pages.tree
        self._disk = disk
        self._swapped = SwapSpace(self._shape, self._pages)
        self._hits = self._misses = self._hit_tokens = self._inserted = 0

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in host memory."""
        return self._pages.page_bytes

    def describe(self) -> str:
        """One line for people: the tiers, their bounds, and whether they are exact."""
        kind = self._codec.name if self._codec.exact else f"{self._codec.name}, not exact"
        text = f"host pages ({kind}): {self._pages.budget_bytes / 2**20:.0f} MiB"
        return text if self._disk is None else f"{text}; disk: {self._disk.bound_bytes / 2**20:.0f} MiB"

    def match(self, tokens: Sequence[Hashable], salt: bytes = b"", limit: int | None = None) -> Match:
        """The longest kept prefix of at most ``limit`` tokens that a sequence can resume from."""
        most = len(tokens) if limit is None else max(0, min(limit, len(tokens)))
        nodes = self._pages.resumable(self._tree.match(tokens[:most], salt))
        return Match(len(nodes) * PAGE_TOKENS, nodes)

    def look_up(self, tokens: Sequence[Hashable], salt: bytes, limit: int | None) -> Match:
        """``match`` for a request, which counts as a hit or a miss."""
        match = self.match(tokens, salt, limit)
        self._hits += bool(match.nodes)
        self._misses += not match.nodes
        self._hit_tokens += match.num_tokens
        return match

    def insert(self, tokens: Sequence[Hashable], salt: bytes, read: Read) -> int:
        """Keep the whole pages of ``tokens``; ``read(start, stop)`` gives what is missing, a few pages at a time.

        Returns how many tokens of them can be resumed from now: fewer when all else is held. For loops with whole
        states, ``tokens`` must be whole pages, and ``read`` is called once, for all that is missing up to their end.
        """
        count = len(tokens) // PAGE_TOKENS
        assert not self._shape.has_whole or count * PAGE_TOKENS == len(tokens)
        found = self._tree.match(tokens, salt)
        if len(self._pages.resumable(found)) < count:
            # What is added must not hang below a page on disk.
            found = found[: len(list(self._pages.read(found)))]
            if all(node.tier is Tier.HOST for node in found):
                found += self._add(tokens, salt, found, count, read)
        return len(self._pages.resumable(found)) * PAGE_TOKENS

    def load(self, match: Match, pool: KvPool, row: int) -> int:
        """Copy a match into an empty row, whose pages must be reserved; returns how many tokens really came.

        That is fewer than matched where pages are gone since, or cannot be read from disk.
        """
        pages, whole = self._resume(match)
        start = 0
        for tensors, length in self._pieces(pages):
            pool.load(row, start, start + length, self._shape.join(tensors, whole))
            start += length
        return start

    def gather(self, match: Match) -> tuple[int, SavedTokens]:
        """A copy of a match as one state, and how many tokens it is of; see ``load``."""
        pages, whole = self._resume(match)
        pieces = [tensors for tensors, _ in self._pieces(pages)]
        if not pieces:
            return 0, self._shape.join(self._shape.empty(), whole)
        joined = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        return len(pages) * PAGE_TOKENS, self._shape.join(joined, [owned(array) for array in whole])

    def part(self, saved: SavedTokens, start: int, stop: int) -> SavedTokens:
        """Tokens [start, stop) of a gathered state, whose end ``stop`` must be where there are whole states."""
        growing, whole = self._shape.split(saved)
        return self._shape.join([array[start:stop] for array in growing], whole)

    def _resume(self, match: Match) -> tuple[list[Page], Arrays]:
        """The pages of a match that can be resumed from now, and the whole states after the last of them."""
        self._tree.touch(match.nodes)
        pages = list(self._pages.read(match.nodes))
        if not self._shape.has_whole:
            return pages, ()
        while pages and pages[-1].whole is None:
            pages.pop()
        return pages, (pages[-1].whole or ()) if pages else ()

    def hold(self, match: Match) -> None:
        """Keep the pages of a match until it is dropped as often as held; they may move to disk."""
        self._tree.hold(match.nodes)

    def drop(self, match: Match) -> None:
        """Undo one ``hold``."""
        self._tree.drop(match.nodes)

    def swap_out(self, key: Hashable, saved: SavedTokens, num_tokens: int) -> bool:
        """Keep the state of a preempted sequence, exactly as it is; False, and nothing is kept, if there is no room."""
        return self._swapped.put(key, saved, num_tokens)

    def swap_in(self, key: Hashable) -> Swapped | None:
        """Take the state of a preempted sequence out, to resume it; None when none is kept."""
        return self._swapped.take(key)

    def forget(self, key: Hashable) -> None:
        """Drop the state of a preempted sequence that will not come back, if there is any."""
        self._swapped.take(key)

    def clear(self) -> None:
        """Forget all prefixes, held ones too: loading them gives nothing then. Swapped sequences stay."""
        self._pages.clear()

    def close(self) -> None:
        """Give all memory and files back."""
        self._swapped.clear()
        self._pages.close()
        if self._disk is not None:
            self._disk.close()

    def usage(self) -> PageStoreUsage:
        """What it holds. Walks the tree: not for every step."""
        disk, moves = self._disk, self._pages.moves
        return PageStoreUsage(
            budget_bytes=self._pages.budget_bytes,
            host_bytes=self._pages.nbytes,
            host_pages=self._tree.count(Tier.HOST),
            held_pages=sum(node.refs > 0 for node in self._tree.nodes()),
            swapped=len(self._swapped),
            swapped_bytes=self._swapped.nbytes,
            disk_pages=self._tree.count(Tier.DISK),
            disk_bytes=0 if disk is None else disk.nbytes,
            exact=self._codec.exact,
            hits=self._hits,
            misses=self._misses,
            hit_tokens=self._hit_tokens,
            inserted_pages=self._inserted,
            evictions=moves.evictions,
            demotions=moves.demotions,
            promotions=moves.promotions,
            disk_write_errors=0 if disk is None else disk.write_errors,
            disk_read_errors=0 if disk is None else disk.read_errors,
        )

    def _add(self, tokens: Sequence[Hashable], salt: bytes, found: Nodes, count: int, read: Read) -> Nodes:
        """Add pages [len(found), count), as many as there is room for; with whole states, all or none."""
        slots = self._pages.take(count - len(found))
        added: Nodes = ()
        try:
            if not self._shape.has_whole:
                filled = self._fill(slots, len(found), read)
                added = self._tree.insert(tokens, salt, slots[:filled])
            elif len(found) + len(slots) == count:
                added = self._add_whole(tokens, salt, found, slots, read)
        finally:
            self._pages.give(slots[len(added) :])
        self._inserted += len(added)
        return added

    def _fill(self, slots: Sequence[int], first: int, read: Read) -> int:
        """Read pages from page ``first`` on into slots, few at a time; returns how many the encoding could take."""
        for start in range(0, len(slots), _READ_PAGES):
            part = slots[start : start + _READ_PAGES]
            begin = first + start
            growing, _ = self._shape.split(read(begin * PAGE_TOKENS, (begin + len(part)) * PAGE_TOKENS))
            columns = self._codec.encode(growing)
            if columns is None:
                return start
            self._pages.write(part, columns)
        return len(slots)

    def _add_whole(
        self, tokens: Sequence[Hashable], salt: bytes, found: Nodes, slots: Sequence[int], read: Read
    ) -> Nodes:
        """Add pages with the whole state after the last of them, which ``read`` gives at that one position only."""
        growing, whole = self._shape.split(read(len(found) * PAGE_TOKENS, len(tokens)))
        columns = self._codec.encode(growing)
        if columns is None or not self._pages.make_room(sum(array.nbytes for array in whole)):
            return ()
        self._pages.write(slots, columns)
        added = self._tree.insert(tokens, salt, slots)
        kept = self._pages.attach((found + added)[-1], whole)
        assert kept, "room was made for it"
        return added

    def _pieces(self, pages: Sequence[Page]) -> Iterator[tuple[Arrays, int]]:
        """What is loaded piece by piece: the tensors of stretches of pages and their tokens.

        Stretches are joined where they are many, since some storages copy the row for each piece; into several pieces,
        since the memory of one is used again for the next. With whole states there is one piece.
        """
        pieces: list[tuple[Arrays, int]] = []
        for in_slots, group in groupby(pages, lambda page: page.slot is not None):
            if in_slots:
                found = runs(page.slot for page in group if page.slot is not None)
                pieces += [(self._pages.view(first, length), length * PAGE_TOKENS) for first, length in found]
            else:
                pieces += [(page.columns, PAGE_TOKENS) for page in group]
        size = len(pieces) if self._shape.has_whole else -(-len(pieces) // _PIECES)
        for first in range(0, len(pieces), max(1, size)):
            part = pieces[first : first + size]
            decoded = [self._codec.decode(columns) for columns, _ in part]
            joined = decoded[0] if len(part) == 1 else [np.concatenate(parts) for parts in zip(*decoded, strict=True)]
            yield joined, sum(length for _, length in part)

"""Which prefixes are kept: a tree over 16-token pages, integers and handles only, so that it can be proved alone.

Tokens are told apart by their keys (``prefix_keys``). A page is found by everything before it: its node hangs below
the node of the page before, and the first pages hang below a root per salt (what else the state depends on, e.g. an
adapter). Nodes know in which tier their page is; along a path pages only go down (host, then disk). What leaves a tier
first is its least recently used node without a child in the same tier, so a prefix never outlives what is needed to
reach it.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import count, pairwise

from genai_pipeline.kv.geometry import PAGE_TOKENS


class Tier(IntEnum):
    """Where the page of a node is; GONE: the node has left the tree and has no page any more."""

    ROOT = -1
    HOST = 0
    DISK = 1
    GONE = 2


class Node:
    """One page of a prefix: only the tree changes it."""

    __slots__ = ("children", "depth", "handle", "key", "last_use", "parent", "peers", "refs", "tier")

    def __init__(self, parent: Node | None, key: Hashable, tier: Tier, handle: int) -> None:
        self.parent = parent
        self.key = key  # those of the page's 16 tokens (``prefix_keys``); of a root, its salt
        self.tier = tier
        self.handle = handle
        self.children: dict[Hashable, Node] = {}
        self.depth: int = 0 if parent is None else parent.depth + 1  # pages from the start of the prefix to its end
        self.peers = 0  # children in the same tier
        self.refs = 0
        self.last_use = 0


class PrefixTree:
    """Pages by prefix, with reference counts and the order in which they leave."""

    def __init__(self) -> None:
        self._roots: dict[bytes, Node] = {}
        self._counts = {Tier.HOST: 0, Tier.DISK: 0}
        self._queues = {(tier, held): _Queue(tier, held) for tier in self._counts for held in (False, True)}
        self.clock = 0  # of the last use

    def count(self, tier: Tier) -> int:
        """Pages in a tier."""
        return self._counts[tier]

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents before children."""
        # Lists first: usage may be read from another thread while the tree changes.
        stack = [child for root in list(self._roots.values()) for child in list(root.children.values())]
        while stack:
            node = stack.pop()
            yield node
            stack += list(node.children.values())

    def match(self, tokens: Sequence[Hashable], salt: bytes = b"") -> tuple[Node, ...]:
        """The longest chain of whole pages that begin ``tokens``; all of it counts as used now."""
        found: list[Node] = []
        node = self._roots.get(salt)
        for key in _pages(tokens):
            node = None if node is None else node.children.get(key)
            if node is None:
                break
            found.append(node)
        self.touch(found)
        return tuple(found)

    def touch(self, nodes: Iterable[Node]) -> None:
        """Count a chain as used now."""
        self.clock += 1
        for node in nodes:
            node.last_use = self.clock

    def insert(self, tokens: Sequence[Hashable], salt: bytes, handles: Sequence[int]) -> tuple[Node, ...]:
        """Add the first pages of ``tokens`` that are missing, one per handle, as host pages; returns their nodes."""
        node = self._roots.get(salt)
        if node is None:
            node = self._roots[salt] = Node(None, salt, Tier.ROOT, 0)
        self.clock += 1
        left = iter(handles)
        added: list[Node] = []
        for key in _pages(tokens):
            child = node.children.get(key)
            if child is None:
                handle = next(left, None)
                if handle is None:
                    break
                child = self._add(node, key, handle)
                added.append(child)
            child.last_use = self.clock
            node = child
        assert next(left, None) is None, "more handles than missing pages"
        self._prune_root(salt)
        self._requeue(added)
        return tuple(added)

    def hold(self, nodes: Iterable[Node]) -> None:
        """Keep a chain, from its first page on, until it is dropped as often as it was held."""
        for node in nodes:
            node.refs += 1
            if node.refs == 1:
                self._requeue((node,))

    def drop(self, nodes: Iterable[Node]) -> None:
        """Undo one ``hold``."""
        for node in nodes:
            assert node.refs > 0
            node.refs -= 1
            if node.refs == 0:
                self._requeue((node,))

    def coldest(self, tier: Tier, *, held: bool = False) -> Node | None:
        """The least recently used node of a tier that has no child in it, among those held or those not."""
        return self._queues[tier, held].coldest()

    def evict(self, tier: Tier = Tier.HOST) -> Node | None:
        """Take the least recently used unreferenced leaf of a tier out of the tree."""
        node = self.coldest(tier)
        if node is None or node.children:
            return None
        self.remove(node)
        return node

    def remove(self, node: Node) -> list[tuple[Node, Tier]]:
        """Take a node and all below it out of the tree, held or not; returns them with the tiers their pages are in."""
        parent = node.parent
        assert parent is not None
        removed: list[tuple[Node, Tier]] = []
        del parent.children[node.key]
        parent.peers -= parent.tier is node.tier
        stack = [node]
        while stack:
            gone = stack.pop()
            stack += gone.children.values()
            gone.children = {}
            removed.append((gone, gone.tier))
            self._counts[gone.tier] -= 1
            gone.tier = Tier.GONE
        if parent.tier is Tier.ROOT:
            assert isinstance(parent.key, bytes)
            self._prune_root(parent.key)
        else:
            self._requeue((parent,))
        return removed

    def move(self, node: Node, tier: Tier, handle: int) -> None:
        """The page of a node is now in another tier: down when no child is left in its own, up when its parent is."""
        parent = node.parent
        assert parent is not None
        assert node.tier is not tier
        assert parent.tier <= tier
        assert all(child.tier >= tier for child in node.children.values())
        self._counts[node.tier] -= 1
        self._counts[tier] += 1
        parent.peers += (parent.tier is tier) - (parent.tier is node.tier)
        node.tier, node.handle = tier, handle
        node.peers = sum(child.tier is tier for child in node.children.values())
        self._requeue((node, parent))

    def _add(self, parent: Node, key: Hashable, handle: int) -> Node:
        assert parent.tier <= Tier.HOST, "a host page below one that is not"
        node = parent.children[key] = Node(parent, key, Tier.HOST, handle)
        parent.peers += parent.tier is Tier.HOST
        self._counts[Tier.HOST] += 1
        return node

    def _prune_root(self, salt: bytes) -> None:
        if not self._roots[salt].children:
            del self._roots[salt]

    def _requeue(self, nodes: Iterable[Node]) -> None:
        """Put nodes whose state changed into the queue they belong to now, if any."""
        for node in nodes:
            if node.tier in self._counts and node.peers == 0:
                self._queues[node.tier, node.refs > 0].add(node, sum(self._counts.values()))


class _Queue:
    """Nodes of one tier, held or not, that have no child in it, least recently used first.

    Lazy: an entry may be out of date in that its node was used since or belongs elsewhere; it is put right when it
    comes to the front. A node has at most one entry, and entries that no node answers for are swept out in time.
    """

    def __init__(self, tier: Tier, held: bool) -> None:
        self._tier = tier
        self._held = held
        self._heap: list[tuple[int, int, Node]] = []
        self._queued: set[Node] = set()
        self._serial = count()

    def add(self, node: Node, population: int) -> None:
        """Queue a node unless it is; ``population`` is how many nodes there are in all."""
        if node not in self._queued:
            self._queued.add(node)
            heapq.heappush(self._heap, (node.last_use, next(self._serial), node))
        if len(self._heap) > 2 * population + 64:
            self._queued = {node for node in self._queued if self._belongs(node)}
            self._heap = [entry for entry in self._heap if entry[2] in self._queued]
            heapq.heapify(self._heap)

    def coldest(self) -> Node | None:
        """The first node that belongs here; it stays."""
        while self._heap:
            last_use, _, node = self._heap[0]
            if not self._belongs(node):
                heapq.heappop(self._heap)
                self._queued.remove(node)
            elif last_use != node.last_use:
                heapq.heapreplace(self._heap, (node.last_use, next(self._serial), node))
            else:
                return node
        return None

    def _belongs(self, node: Node) -> bool:
        return node.tier is self._tier and (node.refs > 0) is self._held and node.peers == 0


def _pages(tokens: Sequence[Hashable]) -> Iterator[tuple[Hashable, ...]]:
    """The whole pages of a sequence of tokens."""
    for start, stop in pairwise(range(0, len(tokens) + 1, PAGE_TOKENS)):
        yield tuple(tokens[start:stop])

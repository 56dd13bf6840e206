"""The prefix tree against a dict of prefixes: what is found, what leaves first, and that no page is lost or shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.prefix_tree import Node, PrefixTree, Tier

PREFIXES = st.lists(st.integers(0, 2), max_size=4).map(tuple)  # a number per page
SALTS = st.sampled_from([b"", b"adapter"])
Key = tuple[bytes, tuple[int, ...]]


def tokens_of(pages: Sequence[int], rest: int = 0) -> list[int]:
    """Tokens of some pages, the last of which differ in their last token only, and of a part of one more."""
    return [token for page in pages for token in [7] * (PAGE_TOKENS - 1) + [page]] + [7] * rest


@dataclass
class Page:
    """What the model knows of a page."""

    handle: int
    node: Node
    tier: Tier = Tier.HOST
    refs: int = 0
    last_use: int = 0


class TreeMachine(RuleBasedStateMachine):
    """A tree and a dict of whole prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = PrefixTree()
        self.model: dict[Key, Page] = {}
        self.holds: list[tuple[tuple[Node, ...], list[Key]]] = []
        self.clock = 0
        self.handles = 0

    def chain(self, salt: bytes, pages: tuple[int, ...]) -> list[Key]:
        keys = [(salt, pages[:end]) for end in range(1, len(pages) + 1)]
        found = next((i for i, key in enumerate(keys) if key not in self.model), len(keys))
        return keys[:found]

    def use(self, keys: list[Key]) -> None:
        self.clock += 1
        for key in keys:
            self.model[key].last_use = self.clock

    def children(self, key: Key) -> list[Page]:
        salt, pages = key
        return [page for (other, more), page in self.model.items() if other == salt and more[:-1] == pages and more]

    def coldest(self, tier: Tier, held: bool) -> Key | None:
        found = [
            key
            for key, page in self.model.items()
            if page.tier is tier
            and (page.refs > 0) is held
            and not any(child.tier is tier for child in self.children(key))
        ]
        return min(found, key=lambda key: self.model[key].last_use, default=None)

    def forget(self, key: Key) -> set[int]:
        salt, pages = key
        gone = [other for other in self.model if other[0] == salt and other[1][: len(pages)] == pages]
        return {self.model.pop(other).handle for other in gone}

    @rule(salt=SALTS, pages=PREFIXES, rest=st.integers(0, 15), most=st.integers(0, 4))
    def insert(self, salt: bytes, pages: tuple[int, ...], rest: int, most: int) -> None:
        found = self.chain(salt, pages)
        if found and self.model[found[-1]].tier is Tier.DISK:
            return
        missing = min(most, len(pages) - len(found))
        handles = list(range(self.handles, self.handles + missing))
        self.handles += missing
        nodes = self.tree.insert(tokens_of(pages, rest), salt, handles)
        assert [node.handle for node in nodes] == handles
        for node, end in zip(nodes, range(len(found) + 1, len(found) + missing + 1), strict=True):
            assert node.depth == end
            self.model[salt, pages[:end]] = Page(node.handle, node)
        self.use(self.chain(salt, pages))

    @rule(salt=SALTS, pages=PREFIXES, rest=st.integers(0, 15))
    def match(self, salt: bytes, pages: tuple[int, ...], rest: int) -> None:
        keys = self.chain(salt, pages)
        nodes = self.tree.match(tokens_of(pages, rest), salt)
        assert [node.handle for node in nodes] == [self.model[key].handle for key in keys]
        self.use(keys)

    @rule(salt=SALTS, pages=PREFIXES)
    def hold(self, salt: bytes, pages: tuple[int, ...]) -> None:
        keys = self.chain(salt, pages)
        nodes = self.tree.match(tokens_of(pages), salt)
        self.use(keys)
        self.tree.hold(nodes)
        self.holds.append((nodes, keys))
        for key in keys:
            self.model[key].refs += 1

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        nodes, keys = self.holds.pop(data.draw(st.integers(0, len(self.holds) - 1)))
        self.tree.drop(nodes)
        for node, key in zip(nodes, keys, strict=True):
            page = self.model.get(key)
            if page is not None and page.node is node:
                page.refs -= 1

    @rule(tier=st.sampled_from([Tier.HOST, Tier.DISK]))
    def evict(self, tier: Tier) -> None:
        key = self.coldest(tier, held=False)
        node = self.tree.evict(tier)
        if key is None or self.children(key):
            assert node is None
        else:
            assert node is not None
            assert {node.handle} == self.forget(key)
            assert node.tier is Tier.GONE

    @rule(held=st.booleans())
    def demote(self, held: bool) -> None:
        key = self.coldest(Tier.HOST, held=held)
        node = self.tree.coldest(Tier.HOST, held=held)
        assert node is (None if key is None else self.model[key].node)
        if key is not None and node is not None:
            self.handles += 1
            self.tree.move(node, Tier.DISK, self.handles - 1)
            self.model[key].tier, self.model[key].handle = Tier.DISK, self.handles - 1

    @precondition(lambda self: any(page.tier is Tier.DISK for page in self.model.values()))
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        salt, pages = data.draw(st.sampled_from([key for key, page in self.model.items() if page.tier is Tier.DISK]))
        key = next(key for key in self.chain(salt, pages) if self.model[key].tier is Tier.DISK)
        self.handles += 1
        self.tree.move(self.model[key].node, Tier.HOST, self.handles - 1)
        self.model[key].tier, self.model[key].handle = Tier.HOST, self.handles - 1

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Held or not: what cannot be read is taken out."""
        key = data.draw(st.sampled_from(sorted(self.model)))
        removed = self.tree.remove(self.model[key].node)
        assert {node.handle for node, _ in removed} == self.forget(key)
        assert all(node.tier is Tier.GONE for node, _ in removed)

    @invariant()
    def pages_are_conserved(self) -> None:
        nodes = list(self.tree.nodes())
        assert sorted(node.handle for node in nodes) == sorted(page.handle for page in self.model.values())
        assert len({node.handle for node in nodes}) == len(nodes)
        for page in self.model.values():
            assert (page.node.tier, page.node.handle, page.node.refs) == (page.tier, page.handle, page.refs)
        for tier in (Tier.HOST, Tier.DISK):
            assert self.tree.count(tier) == sum(page.tier is tier for page in self.model.values())

    @invariant()
    def who_leaves_first(self) -> None:
        for tier in (Tier.HOST, Tier.DISK):
            for held in (False, True):
                key, node = self.coldest(tier, held), self.tree.coldest(tier, held=held)
                assert node is (None if key is None else self.model[key].node)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_queues_do_not_grow_with_the_number_of_uses() -> None:
    tree = PrefixTree()
    tree.insert(tokens_of((1, 2)), b"", (0, 1))
    for i in range(2000):
        nodes = tree.match(tokens_of((1, 2)))
        tree.hold(nodes)
        tree.drop(nodes)
        tree.insert(tokens_of((1, i + 3)), b"", (i + 2,))
        tree.remove(tree.match(tokens_of((1, i + 3)))[-1])
    assert sum(len(queue._heap) for queue in tree._queues.values()) < 300
    assert tree.count(Tier.HOST) == 2


def test_an_empty_tree_keeps_no_roots() -> None:
    tree = PrefixTree()
    tree.insert(tokens_of((1,)), b"a", ())
    tree.insert(tokens_of((1,)), b"b", (0,))
    assert tree.evict() is not None
    assert tree.evict() is None
    assert not tree._roots

"""The page store gives back exactly what a prefix's state is, within its budget, whatever happened before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.page_store import Match, PageStore
from genai_pipeline.kv.pool import KvPool, SavedTokens
from genai_pipeline.kv.prefix_tree import Tier
from genai_pipeline.kv.tiers import DiskTier

CAPACITY = 96


def growing(update: str) -> StatePlan:
    shapes: tuple[tuple[str | int, ...], ...] = (("batch", 2, "length", 3), ("batch", "length", 5))
    tensors = [
        StateTensor(0, str(i), f"p{i}", f"n{i}", dtype, shape)
        for i, (dtype, shape) in enumerate(zip(("float32", "float16"), shapes, strict=True))
    ]
    return StatePlan(update, tuple(tensors))  # type: ignore[arg-type]


RECURRENT = StatePlan("replace", (StateTensor(0, "s", "s", "t", "float32", ("batch", 7)),))
KINDS: dict[str, dict[str, list[StatePlan]]] = {
    "growing": {"a": [growing("in_place"), growing("append")], "b": [growing("scatter")]},
    "mixed": {"a": [growing("append"), RECURRENT]},
    "recurrent": {"a": [RECURRENT]},
    "none": {"a": []},
}


def values(tokens: Sequence[int], salt: bytes) -> list[int]:
    """One number per token that depends on all before it and on the salt; exact in float16."""
    state = len(salt)
    out = []
    for token in tokens:
        state = (state * 31 + token + 1) % 2039
        out.append(state)
    return out


def state_of(kind: str, tokens: Sequence[int], salt: bytes, start: int, stop: int) -> SavedTokens:
    """What the graphs of a kind would have left of tokens [start, stop)."""
    known = values(tokens[:stop], salt)

    def array(plan: StatePlan, tensor: StateTensor) -> NDArray[Any]:
        sizes = [dim for dim in tensor.shape if isinstance(dim, int)]
        if not plan.grows:
            return np.full(sizes, known[stop - 1] if stop else 0, tensor.dtype)
        column = np.array(known[start:stop], tensor.dtype).reshape(-1, *[1] * len(sizes))
        return np.broadcast_to(column, (stop - start, *sizes)).copy()

    return {name: [[array(plan, t) for t in plan.tensors] for plan in plans] for name, plans in KINDS[kind].items()}


def assert_equal(found: SavedTokens, expected: SavedTokens) -> None:
    for name, entries in expected.items():
        for arrays, wanted in zip(found[name], entries, strict=True):
            for array, want in zip(arrays, wanted, strict=True):
                np.testing.assert_array_equal(array, want)


PROMPTS = st.lists(st.integers(0, 1), max_size=5).map(
    lambda pages: [page for page in pages for _ in range(PAGE_TOKENS)]
)
SALTS = st.sampled_from([b"", b"x"])


class StoreMachine(RuleBasedStateMachine):
    """Random histories; loading is compared with what the prefix determines."""

    @initialize(kind=st.sampled_from(["growing", "mixed", "recurrent"]), disk=st.sampled_from([0, 1, 3, 50]))
    def start(self, kind: str, disk: int) -> None:
        self.kind = kind
        self.folder = Path(tempfile.mkdtemp())
        self.pool = KvPool(KINDS[kind], max_rows=2, capacity=CAPACITY)
        budget = 7 * self.pool.page_bytes + 100
        self.disk = DiskTier(self.folder, disk * (self.pool.page_bytes + 30)) if disk else None
        self.store = PageStore(KINDS[kind], budget_bytes=budget, disk=self.disk)
        self.budget = budget
        self.held: list[tuple[Match, list[int], bytes]] = []
        self.swapped: dict[int, tuple[list[int], int]] = {}
        self.damaged = False

    def check(self, match: Match, tokens: list[int], salt: bytes, whole: bool) -> None:
        row = self.pool.open()
        assert row is not None
        assert self.pool.reserve(row, match.num_tokens)
        loaded = self.store.load(match, self.pool, row)
        assert loaded % PAGE_TOKENS == 0
        assert loaded == match.num_tokens if whole else loaded <= match.num_tokens
        assert self.pool.length(row) == loaded
        if loaded:
            expected = state_of(self.kind, tokens, salt, 0, loaded)
            assert_equal(self.pool.save(row, 0, loaded), expected)
        self.pool.release(row)

    @rule(tokens=PROMPTS, salt=SALTS, rest=st.integers(0, 15))
    def insert(self, tokens: list[int], salt: bytes, rest: int) -> None:
        given = tokens + [5] * (rest if self.kind == "growing" else 0)
        asked: list[tuple[int, int]] = []

        def read(start: int, stop: int) -> SavedTokens:
            asked.append((start, stop))
            return state_of(self.kind, tokens, salt, start, stop)

        before = self.store.match(tokens, salt).num_tokens
        kept = self.store.insert(given, salt, read)
        after = self.store.match(tokens, salt)
        assert after.num_tokens == kept <= len(tokens)
        assert kept >= before or self.damaged
        if asked:
            assert all(start % PAGE_TOKENS == stop % PAGE_TOKENS == 0 for start, stop in asked)
            assert all(stop == start for (_, stop), (start, _) in pairwise(asked))

    @rule(tokens=PROMPTS, salt=SALTS, limit=st.none() | st.integers(0, 100))
    def load(self, tokens: list[int], salt: bytes, limit: int | None) -> None:
        match = self.store.match(tokens, salt, limit)
        assert match.num_tokens <= (len(tokens) if limit is None else limit)
        self.check(match, tokens, salt, not self.damaged)

    @rule(tokens=PROMPTS, salt=SALTS)
    def hold(self, tokens: list[int], salt: bytes) -> None:
        match = self.store.match(tokens, salt)
        self.store.hold(match)
        self.held.append((match, tokens, salt))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def load_held(self, data: st.DataObject) -> None:
        match, tokens, salt = data.draw(st.sampled_from(self.held))
        self.check(match, tokens, salt, not self.damaged)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        match, _, _ = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.store.drop(match)

    @rule(key=st.integers(0, 3), tokens=PROMPTS, length=st.integers(0, 80))
    def swap_out(self, key: int, tokens: list[int], length: int) -> None:
        if key in self.swapped:
            return
        length = min(length, len(tokens))
        if self.store.swap_out(key, state_of(self.kind, tokens, b"", 0, length), length):
            self.swapped[key] = (tokens, length)

    @rule(key=st.integers(0, 3))
    def swap_in(self, key: int) -> None:
        found = self.store.swap_in(key)
        if key not in self.swapped:
            assert found is None
            return
        tokens, length = self.swapped.pop(key)
        assert found is not None
        assert found.num_tokens == length
        assert_equal(found.saved, state_of(self.kind, tokens, b"", 0, length))

    @precondition(lambda self: self.disk is not None and self.disk.records)
    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        assert self.disk is not None
        handle = data.draw(st.sampled_from(sorted(self.disk._records)))
        record = self.disk._records[handle]
        if record.size:
            self.damaged = True
            file = self.disk._files[record.size]._file
            file.seek(record.slot * record.size)
            byte = file.read(1)[0]
            file.seek(record.slot * record.size)
            file.write(bytes([byte ^ 1]))

    @precondition(lambda self: not self.held)
    @rule()
    def clear(self) -> None:
        self.store.clear()
        usage = self.store.usage()
        assert usage.host_pages == usage.disk_pages == usage.disk_bytes == 0
        assert usage.host_bytes == usage.swapped_bytes

    @invariant()
    def bytes_add_up(self) -> None:
        pages = self.store._pages
        usage = self.store.usage()
        assert pages.resident_bytes <= self.budget
        wholes = sum(whole.nbytes for whole in pages._wholes.values() if whole.arrays is not None)
        assert usage.host_bytes == usage.host_pages * self.store.page_bytes + wholes + usage.swapped_bytes
        assert pages._memory.used == usage.host_pages
        slots = [node.handle for node in pages.tree.nodes() if node.tier is Tier.HOST]
        assert len(set(slots)) == len(slots)
        assert usage.swapped == len(self.swapped)
        assert set(pages._wholes) <= set(pages.tree.nodes())
        if self.disk is not None:
            assert self.disk.records == usage.disk_pages
            assert self.disk.nbytes <= self.disk.bound_bytes

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            assert self.store.usage().host_bytes == 0
            self.pool.close()
            assert not list(self.folder.iterdir())
            shutil.rmtree(self.folder)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def prompt(*pages: int) -> list[int]:
    return [page for page in pages for _ in range(PAGE_TOKENS)]


def put(store: PageStore, tokens: list[int], salt: bytes = b"", kind: str = "growing") -> int:
    return store.insert(tokens, salt, lambda start, stop: state_of(kind, tokens, salt, start, stop))


def make_store(pages: int, **options: Any) -> PageStore:
    return PageStore(KINDS["growing"], budget_bytes=pages * page_bytes(), **options)


def page_bytes() -> int:
    return PAGE_TOKENS * 3 * (2 * 3 * 4 + 5 * 2)


def test_only_missing_pages_are_read() -> None:
    store = make_store(60)
    asked: list[tuple[int, int]] = []

    def read(start: int, stop: int) -> SavedTokens:
        asked.append((start, stop))
        return state_of("growing", tokens, b"", start, stop)

    tokens = prompt(1, 2)
    assert store.insert(tokens, b"", read) == 32
    tokens = prompt(1, 2, *range(3, 15), 15)
    assert store.insert(tokens, b"", read) == len(tokens)
    assert store.insert(tokens, b"", read) == len(tokens)
    assert asked == [(0, 32), (32, 160), (160, 240)]
    assert store.usage().inserted_pages == 15
    store.close()


def test_the_limit_cuts_whole_pages() -> None:
    store = make_store(8)
    tokens = prompt(1, 2, 3)
    put(store, tokens)
    limits = {None: 48, 48: 48, 47: 32, 46: 32, 32: 32, 16: 16, 15: 0, 0: 0, -2: 0, 99: 48}
    assert {limit: store.match(tokens, b"", limit).num_tokens for limit in limits} == limits
    assert (store.usage().hits, store.usage().misses) == (0, 0)
    assert {limit: store.look_up(tokens, b"", limit).num_tokens for limit in limits} == limits
    usage = store.usage()
    assert (usage.hits, usage.misses, usage.hit_tokens) == (7, 3, sum(limits.values()))
    store.close()


def test_salts_do_not_share() -> None:
    store = make_store(8)
    put(store, prompt(1, 2), b"a")
    assert store.match(prompt(1, 2)).num_tokens == 0
    assert store.match(prompt(1, 2), b"a").num_tokens == 32
    store.close()


def test_the_coldest_leaves_make_room_and_the_used_ones_stay() -> None:
    store = make_store(4)
    put(store, prompt(1, 2))
    put(store, prompt(3, 4))
    store.match(prompt(1, 2))
    put(store, prompt(5))
    assert [store.match(prompt(*pages)).num_tokens for pages in ((1, 2), (3, 4), (5,))] == [32, 16, 16]
    assert store.usage().evictions == 1
    store.close()


def test_what_is_held_stays_and_inserts_less() -> None:
    store = make_store(4)
    put(store, prompt(1, 2, 3))
    match = store.match(prompt(1, 2, 3))
    store.hold(match)
    assert put(store, prompt(7, 8, 9)) == 16
    assert store.swap_out("s", state_of("growing", prompt(1, 1), b"", 0, 32), 32) is False
    assert store.usage().held_pages == 3
    store.drop(match)
    assert put(store, prompt(7, 8, 9)) == 48
    store.close()


def test_an_insert_larger_than_the_budget_keeps_its_beginning() -> None:
    store = make_store(4)
    assert put(store, prompt(*range(9))) == 64
    assert store.match(prompt(*range(9))).num_tokens == 64
    store.close()


def test_a_read_that_fails_leaves_everything_as_it_was() -> None:
    store = make_store(6)
    put(store, prompt(1))

    def read(start: int, stop: int) -> SavedTokens:
        raise RuntimeError("no state")

    with pytest.raises(RuntimeError, match="no state"):
        store.insert(prompt(1, 2, 3), b"", read)
    assert store.usage().host_pages == 1
    assert put(store, prompt(1, 2, 3)) == 48
    store.close()


def test_swapped_state_counts_what_it_keeps_alive() -> None:
    store = make_store(4)
    base = state_of("growing", prompt(1, 2, 3, 4), b"", 0, 64)
    view = {name: [[array[:8] for array in arrays] for arrays in entries] for name, entries in base.items()}
    assert store.swap_out(1, view, 8)
    assert store.usage().swapped_bytes == page_bytes() // 2
    found = store.swap_in(1)
    assert found is not None
    assert all(array.base is None for entries in found.saved.values() for arrays in entries for array in arrays)
    assert store.usage().host_bytes == 0
    store.close()


def test_swapped_sequences_push_prefixes_out_and_their_memory_too() -> None:
    store = make_store(4)
    put(store, prompt(1, 2, 3, 4))
    assert store.swap_out("s", state_of("growing", prompt(1, 2, 3), b"", 0, 48), 48)
    assert store.usage().host_pages == 1
    assert store._pages.resident_bytes == 4 * page_bytes()
    assert not store.swap_out("t", state_of("growing", prompt(1, 2), b"", 0, 32), 32)
    store.swap_in("s")
    assert put(store, prompt(1, 2, 3, 4)) == 64
    store.close()


def test_pressure_moves_pages_to_disk_and_hits_bring_them_back(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 100 * page_bytes())
    store, pool = make_store(4, disk=disk), KvPool(KINDS["growing"], max_rows=1, capacity=CAPACITY)
    first, second = prompt(1, 2, 3), prompt(4, 5, 6)
    put(store, first)
    held = store.match(first)
    store.hold(held)
    put(store, second)
    usage = store.usage()
    assert (usage.host_pages, usage.disk_pages, usage.demotions, usage.evictions) == (4, 2, 2, 0)
    assert usage.disk_bytes == 2 * page_bytes()
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, 48)
    assert store.load(held, pool, row) == 48
    assert_equal(pool.save(row, 0, 48), state_of("growing", first, b"", 0, 48))
    assert store.usage().promotions == 2
    assert store.match(second).num_tokens == 48
    store.close()
    assert not list(tmp_path.iterdir())


def test_what_no_longer_reads_right_is_a_miss(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 100 * page_bytes())
    store, pool = make_store(2, disk=disk), KvPool(KINDS["growing"], max_rows=1, capacity=CAPACITY)
    tokens = prompt(1, 2)
    put(store, tokens)
    put(store, prompt(3, 4))
    match = store.match(tokens)
    store.hold(match)
    file = disk._files[page_bytes()]._file
    for slot in (0, 1):
        file.seek(slot * page_bytes() + 9)
        file.write(b"!")
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, 32)
    assert store.load(match, pool, row) == 0
    assert store.usage().disk_read_errors == 1
    assert store.match(tokens).num_tokens == 0
    store.drop(match)
    assert put(store, tokens) == 32
    store.close()


def test_whole_states_are_resumed_only_where_they_were_taken() -> None:
    store = PageStore(KINDS["mixed"], budget_bytes=10_000)
    tokens = prompt(1, 2, 3)
    assert put(store, tokens, kind="mixed") == 48
    assert store.match(tokens, b"", 46).num_tokens == 0
    assert put(store, tokens[:32], kind="mixed") == 32
    assert store.match(tokens, b"", 46).num_tokens == 32
    assert store.match(prompt(1, 2, 9)).num_tokens == 32
    assert store.usage().host_pages == 3
    store.close()


def test_a_whole_state_joins_a_page_that_went_to_disk(tmp_path: Path) -> None:
    pool = KvPool(KINDS["mixed"], max_rows=1, capacity=CAPACITY)
    store = PageStore(KINDS["mixed"], budget_bytes=2 * MIXED_PAGE + 100, disk=DiskTier(tmp_path, 10**6))
    tokens = prompt(1, 2)
    put(store, tokens, kind="mixed")
    put(store, prompt(3, 4), kind="mixed")
    assert store.usage().disk_pages == 2
    assert put(store, tokens[:16], kind="mixed") == 16
    assert store.usage().disk_pages == 2
    put(store, prompt(5, 6), kind="mixed")
    for length in (16, 32):
        row = pool.open()
        assert row is not None
        assert pool.reserve(row, length)
        assert store.load(store.match(tokens[:length]), pool, row) == length
        assert_equal(pool.save(row, 0, length), state_of("mixed", tokens, b"", 0, length))
        pool.release(row)
    store.close()


MIXED_PAGE, WHOLE = PAGE_TOKENS * (2 * 3 * 4 + 5 * 2), 7 * 4


def mixed_store(host: int, disk: DiskTier) -> PageStore:
    return PageStore(KINDS["mixed"], budget_bytes=host, disk=disk)


def test_a_page_that_must_stay_on_disk_takes_no_whole_state(tmp_path: Path) -> None:
    store = mixed_store(2 * MIXED_PAGE + 100, DiskTier(tmp_path, 2 * MIXED_PAGE + WHOLE))
    put(store, prompt(1, 2), kind="mixed")
    store.hold(store.match(prompt(1, 2)))
    put(store, prompt(3), kind="mixed")
    store.hold(store.match(prompt(3)))
    assert store.swap_out("s", state_of("mixed", prompt(9), b"", 0, 16), 16)
    usage = store.usage()
    assert (usage.host_pages, usage.disk_pages) == (1, 2)
    assert put(store, prompt(1), kind="mixed") == 0  # there is room for the state, not for the page
    store.swap_in("s")
    assert put(store, prompt(1), kind="mixed") == 16
    store.close()


def test_no_page_comes_up_before_the_one_above_it(tmp_path: Path) -> None:
    store = mixed_store(3 * MIXED_PAGE + 2 * WHOLE + 12, DiskTier(tmp_path, 10**6))
    pool = KvPool(KINDS["mixed"], max_rows=1, capacity=CAPACITY)
    tokens = prompt(1, 2, 3)
    put(store, tokens[:16], kind="mixed")
    put(store, tokens, kind="mixed")
    assert store.swap_out("s", state_of("mixed", prompt(7, 8, 9), b"", 0, 33), 33)  # leaves a page, but not its state
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, 48)
    assert store.load(store.match(tokens), pool, row) == 48
    assert_equal(pool.save(row, 0, 48), state_of("mixed", tokens, b"", 0, 48))
    assert (store.usage().host_pages, store.usage().disk_pages) == (0, 3)
    store.close()


def test_what_made_room_on_disk_may_have_been_the_use_of_a_page(tmp_path: Path) -> None:
    store = mixed_store(2 * MIXED_PAGE + 100, DiskTier(tmp_path, MIXED_PAGE + WHOLE))
    put(store, prompt(1, 2), kind="mixed")
    put(store, prompt(3), kind="mixed")
    put(store, prompt(4), kind="mixed")
    usage = store.usage()
    assert (usage.host_pages, usage.disk_pages, usage.demotions, usage.evictions) == (2, 0, 1, 1)
    assert [store.match(prompt(page)).num_tokens for page in (1, 3, 4)] == [0, 16, 16]
    store.close()


def test_a_page_on_disk_stays_while_it_is_warmer_than_what_would_come(tmp_path: Path) -> None:
    store = make_store(2, disk=DiskTier(tmp_path, page_bytes()))
    for page in (1, 2, 3):
        put(store, prompt(page))
    assert store.match(prompt(1)).num_tokens == 16
    put(store, prompt(4))
    assert [store.match(prompt(page)).num_tokens for page in (1, 2, 3, 4)] == [16, 0, 16, 16]
    store.match(prompt(4))
    store.match(prompt(3))
    put(store, prompt(5))
    assert [store.match(prompt(page)).num_tokens for page in (1, 3, 4, 5)] == [0, 16, 16, 16]
    store.close()


def test_pages_beyond_the_last_whole_state_go_with_it() -> None:
    store = PageStore(KINDS["mixed"], budget_bytes=4 * MIXED_PAGE + 100)
    put(store, prompt(1, 2, 3), kind="mixed")
    put(store, prompt(4, 5), kind="mixed")
    assert store.match(prompt(1, 2, 3)).num_tokens == 0
    assert store.usage().host_pages == 2
    store.close()


@pytest.mark.parametrize("pages", [1, 9, 12])
def test_scattered_pages_load_as_one_row(pages: int) -> None:
    store = make_store(200)
    pool = KvPool(KINDS["growing"], max_rows=1, capacity=256)
    tokens = prompt(*range(pages))
    for end in range(1, pages + 1):  # every page of it has a neighbour of something else
        put(store, tokens[: end * PAGE_TOKENS])
        put(store, prompt(1000 + end))
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, len(tokens))
    assert store.load(store.match(tokens), pool, row) == len(tokens)
    assert_equal(pool.save(row, 0, len(tokens)), state_of("growing", tokens, b"", 0, len(tokens)))
    store.close()


def test_rounded_pages_say_so_and_stay_close(tmp_path: Path) -> None:
    store = make_store(8, int8=True, disk=DiskTier(tmp_path, 10**6))
    pool = KvPool(KINDS["growing"], max_rows=1, capacity=CAPACITY)
    tokens = prompt(1, 2, 3)
    assert store.page_bytes < page_bytes()
    assert "int8" in store.describe()
    assert "not exact" in store.describe()
    assert not store.usage().exact
    assert make_store(1).usage().exact
    put(store, tokens)
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, 48)
    assert store.load(store.match(tokens), pool, row) == 48
    found = pool.save(row, 0, 48)["a"][0][0]
    np.testing.assert_allclose(found, state_of("growing", tokens, b"", 0, 48)["a"][0][0], rtol=1e-2)
    swapped = state_of("growing", tokens, b"", 0, 16)
    assert store.swap_out(1, swapped, 16)
    back = store.swap_in(1)
    assert back is not None
    assert_equal(back.saved, swapped)
    store.close()


def test_state_without_tokens_needs_no_memory() -> None:
    store = PageStore(KINDS["none"], budget_bytes=1000)
    assert store.insert(prompt(1, 2), b"", lambda start, stop: {"a": []}) == 32
    pool = KvPool(KINDS["none"], max_rows=1, capacity=64)
    row = pool.open()
    assert row is not None
    assert pool.reserve(row, 32)
    assert store.load(store.match(prompt(1, 2)), pool, row) == 32
    store.close()


@pytest.mark.parametrize("kind", ["growing", "mixed", "recurrent"])
def test_fork_copies_a_row(kind: str) -> None:
    pool = KvPool(KINDS[kind], max_rows=2, capacity=CAPACITY)
    tokens = prompt(1, 2)[:21]
    source, target = pool.open(), pool.open()
    assert source is not None
    assert target is not None
    assert pool.reserve(source, 21)
    pool.load(source, 0, 21, state_of(kind, tokens, b"", 0, 21))
    assert pool.reserve(target, 21)
    pool.fork(source, target, 21)
    assert_equal(pool.save(target, 0, 21), state_of(kind, tokens, b"", 0, 21))
    pool.close()

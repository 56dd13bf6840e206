"""Keys of prefixes: slots are told apart by their items and by their place in them."""

from __future__ import annotations

from genai_pipeline.kv.prefix_keys import prefix_keys
from genai_pipeline.kv.prefix_tree import PrefixTree

TOKENS = list(range(100, 148))


def test_without_slots_the_tokens_are_the_keys() -> None:
    assert prefix_keys(TOKENS) is TOKENS
    assert prefix_keys(TOKENS, [(48, 50, b"later")]) is TOKENS


def test_slots_count_from_the_start_of_their_range() -> None:
    keys = prefix_keys([1, 7, 7, 7, 2, 7], [(1, 4, b"a"), (5, 6, b"b")])
    assert list(keys) == [1, (b"a", 0), (b"a", 1), (b"a", 2), 2, (b"b", 0)]


def test_a_range_may_end_after_the_prefix() -> None:
    assert list(prefix_keys([7, 7], [(1, 4, b"a")])) == [7, (b"a", 0)]


def test_prefixes_part_at_the_first_slot_that_differs() -> None:
    tree = PrefixTree()
    tree.insert(prefix_keys(TOKENS, [(20, 40, b"a")]), b"", [0, 1, 2])
    for digest, pages in ((b"a", 3), (b"b", 1)):
        assert len(tree.match(prefix_keys(TOKENS, [(20, 40, digest)]))) == pages
    assert len(tree.match(prefix_keys(TOKENS, [(21, 41, b"a")]))) == 1
    assert len(tree.match(TOKENS)) == 1

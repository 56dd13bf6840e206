"""Prompt lookup: the index against a plain search, longest match first, the most recent, and what grows is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.speculative.drafter import Want
from genai_pipeline.speculative.lookup import LookupDrafter, Match, MatchIndex, continuation, source_of

Text = Callable[..., Any]


def searched(tokens: list[int], shortest: int, longest: int) -> int | None:
    """Where the latest earlier occurrence of the longest suffix goes on, by trying all."""
    for n in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for at in range(len(tokens) - 1, n - 1, -1):
            if tokens[at - n : at] == tokens[-n:]:
                return at
    return None


def drafts(drafter: LookupDrafter, target: Any, most: int) -> tuple[int, ...]:
    return drafter.propose([Want(target, most)]).drafts[0]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 3), st.integers(0, 3), st.data())
def test_an_index_that_grows_finds_what_a_search_finds(
    tokens: list[int], shortest: int, more: int, data: st.DataObject
) -> None:
    index = MatchIndex(shortest, shortest + more)
    at = 0
    while at < len(tokens):
        at = min(len(tokens), at + data.draw(st.integers(1, 5)))
        index.extend(tokens[:at])
        found = index.match(tokens[:at])
        assert (None if found is None else found.at) == searched(tokens[:at], shortest, shortest + more)


def test_the_longest_match_wins_and_of_equal_ones_the_latest(text: Text) -> None:
    drafter = LookupDrafter(1, 3, 8)
    target = text([7, 8, 9, 1, 5, 9, 2, 5, 9, 3, 7, 8, 9])
    assert drafts(drafter, target, 1) == (1,)  # after 7 8 9, not after the later 5 9 or 9
    assert drafts(drafter, text([5, 9, 2, 5, 9, 3, 6, 9], id=2), 2) == (3, 6)  # after the later 9


def test_nothing_is_proposed_where_nothing_matches(text: Text) -> None:
    drafter = LookupDrafter(2, 4, 8)
    for tokens in ([1], [1, 2], [1, 2, 3, 4, 5], [1, 2, 3, 2]):
        target = text(tokens, id=len(tokens))
        assert drafter.source(target) is None
        assert drafts(drafter, target, 8) == ()


def test_a_text_that_repeats_itself_goes_on(text: Text) -> None:
    assert continuation([1, 2, 3, 1, 2, 3], 3, 7) == (1, 2, 3, 1, 2, 3, 1)
    assert drafts(LookupDrafter(2, 4, 8), text([4, 1, 2, 1, 2]), 6) == (1, 2, 1, 2, 1, 2)


def test_drafts_are_no_longer_than_wanted_or_allowed(text: Text) -> None:
    target = text([*range(20), 3, 4])
    assert drafts(LookupDrafter(2, 4, 5), target, 9) == (5, 6, 7, 8, 9)
    assert drafts(LookupDrafter(2, 4, 5), target, 2) == (5, 6)


def test_the_source_tells_how_long_the_match_is(text: Text) -> None:
    copied = list(range(100, 140))
    drafter = LookupDrafter(2, 4, 5)
    names = []
    for length in (2, 3, 6, 12, 30):
        source = drafter.source(text([*copied, 1, *copied[5 : 5 + length]], id=length))
        assert source is not None
        names.append(source.name)
    assert names == ["lookup-2", "lookup-3", "lookup-5", "lookup-9", "lookup-17"]
    priors = [source_of(length).prior for length in range(1, 40)]
    assert priors == sorted(priors)
    assert all(0 < prior < 1 for prior in priors)


def test_a_match_is_followed_back_over_its_whole_length() -> None:
    index, tokens = MatchIndex(2, 4), [9, 1, 2, 3, 4, 5, 6, 8, 1, 2, 3, 4, 5, 6]
    index.extend(tokens)
    assert index.match(tokens) == Match(7, 6)


def test_sequences_do_not_see_each_other_and_are_forgotten(text: Text) -> None:
    drafter = LookupDrafter(2, 4, 8)
    first, second = text([1, 2, 3, 1, 2], id=1), text([5, 6, 1, 2], id=2)
    assert drafts(drafter, first, 1) == (3,)
    assert drafter.source(second) is None
    drafter.forget(1)
    drafter.forget(1)
    assert drafts(drafter, text([8, 9, 1, 2], id=1), 1) == ()


def test_tokens_that_come_later_are_found(text: Text) -> None:
    drafter, target = LookupDrafter(2, 4, 3), text([1, 2])
    assert drafter.source(target) is None
    target.tokens += [3, 4, 1, 2]
    assert drafts(drafter, target, 3) == (3, 4, 1)
    target.tokens += [3]
    assert drafts(drafter, target, 3) == (4, 1, 2)

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.penalties import TokenCounts
from genai_pipeline.sampling.repeats import Dry, NoRepeatNgram, SuffixMatches

TOKENS = st.lists(st.integers(0, 3), max_size=90)
VOCABULARY = 5


@given(TOKENS, TOKENS, st.integers(1, 5), st.integers(0, 20), st.sets(st.integers(0, 3), max_size=2))
def test_dry_follows_its_definition_token_by_token(
    twin: Any, prompt: list[int], output: list[int], allowed: int, window: int, breakers: set[int]
) -> None:
    options = GenerationOptions(
        dry_multiplier=1.0,
        dry_base=1.5,
        dry_allowed_length=allowed,
        dry_range=window,
        dry_sequence_breakers=tuple(breakers),
    )
    dry = Dry(options, prompt)
    for token in output:
        dry.accept(token)
    row = np.zeros(VOCABULARY, np.float32)
    dry.apply(row)
    found = twin.dry_matches(options, prompt + output)
    assert row.tolist() == [np.float32(-(1.5 ** (found[i] - allowed))) if i in found else 0 for i in range(VOCABULARY)]


@given(TOKENS, TOKENS, st.integers(1, 6))
def test_no_ngram_occurs_twice(twin: Any, prompt: list[int], output: list[int], size: int) -> None:
    bans = NoRepeatNgram(GenerationOptions(no_repeat_ngram_size=size), prompt)
    for token in output:
        bans.accept(token)
    row = np.zeros(VOCABULARY, np.float32)
    bans.apply(row)
    assert set(np.flatnonzero(np.isinf(row)).tolist()) == twin.ngram_bans(size, prompt + output)


def test_a_long_match_is_counted_up_to_the_bound_only() -> None:
    matches = SuffixMatches([0, 1] * 200, 50)
    tokens, lengths = matches.followers(2)
    assert set(tokens.tolist()) == {0}
    assert lengths.max() == 50
    assert matches.followers(2, window=10)[1].max() == 8  # ten tokens, of which the last two are the match's own


@given(TOKENS, TOKENS)
def test_counts_are_those_of_counting_anew(first: list[int], second: list[int]) -> None:
    counts = TokenCounts(first)
    for token in second:
        counts.add(token)
    for size in (2, 9):
        ids, found = counts.below(size)
        everything = first + second
        expected = {token: everything.count(token) for token in everything if token < size}
        assert dict(zip(ids.tolist(), found.tolist(), strict=True)) == expected


def test_counts_grow_beyond_their_room() -> None:
    counts = TokenCounts()
    for token in range(300):
        counts.add(token)
        counts.add(299 - token)
    ids, found = counts.below(1000)
    assert sorted(ids.tolist()) == list(range(300))
    assert set(found.tolist()) == {2}

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.alignment import first_frames


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.integers(-9, 9)))
def test_the_path_is_a_cheapest_one(cost: Any) -> None:
    tokens, frames = cost.shape

    @cache
    def least(i: int, j: int) -> float:
        ways = [least(*before) for before in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if min(before) >= 0]
        return float(cost[i, j]) + (min(ways) if ways else 0.0)

    first = first_frames(cost)
    assert first[0] == 0
    assert (np.diff(first) >= 0).all()
    assert _cost_with(cost, first.tolist()) == pytest.approx(least(tokens - 1, frames - 1))


def _cost_with(cost: Any, first: list[int]) -> float:
    """The least cost of a path whose tokens begin at these frames: the last frame of each is free to be chosen."""
    tokens, frames = cost.shape
    total = 0.0
    for token in range(tokens):
        begin = first[token]
        if token + 1 == tokens:
            return total + float(cost[token, begin:].sum())
        following = first[token + 1]
        ends = {following, following - 1} & set(range(begin, frames))
        total += min(float(cost[token, begin : end + 1].sum()) for end in ends)
    return total


def test_words_begin_where_their_tokens_are_attended(call: Any, spoken: Any, tokenizer: Any) -> None:
    tokens = [tokenizer.token_id(text) for text in ("▁ever", "▁try", "ing")]
    weights = np.zeros((1, 2, 3, 12), np.float32)
    for token, (start, stop) in enumerate(((0, 4), (4, 9), (9, 12))):
        weights[:, :, token, start:stop] = 1
    found = call("align_words", {"weights": weights, "tokens": tokens, "start": 10.0}, spoken, seconds=0.5, smooth=1)
    assert [(word["text"], word["start"]) for word in found["words"]] == [("ever", 10.0), ("trying", 12.0)]
    assert found["words"][-1]["end"] == 16.0
    assert call("align_words", {"weights": weights[:, :, :0], "tokens": []}, spoken)["words"] == []
    with pytest.raises(RequestError, match="3 tokens for 1"):
        call("align_words", {"weights": weights, "tokens": [1]}, spoken)

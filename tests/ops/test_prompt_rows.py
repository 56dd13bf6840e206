from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext


def rows(start: int, stop: int) -> Any:
    """Rows whose numbers are their position."""
    return np.repeat(np.arange(start, stop, dtype=np.float32)[:, np.newaxis], 2, 1)[np.newaxis]


LAYOUTS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=4)  # text before, slots of an item


@given(LAYOUTS, st.integers(0, 3), st.data())
def test_splice_gives_the_same_prompt_in_any_chunks(
    call: Any, layout: list[tuple[int, int]], after: int, data: Any
) -> None:
    at, position = [], 0
    for before, count in layout:
        at.append(np.arange(position + before, position + before + count))
        position += before + count
    length = position + after
    features = [-np.float32(index + 1) * np.ones((1, len(item), 2), np.float32) for index, item in enumerate(at)]
    wanted = rows(0, length)
    for item, values in zip(at, features, strict=True):
        for nth, place in enumerate(item):
            wanted[0, place] = values[0, nth]
    cuts = [cut for cut in sorted(data.draw(st.sets(st.integers(1, 20), max_size=3))) if cut < length]
    pieces = []
    for start, stop in zip([0, *cuts], [*cuts, length], strict=True):
        if start < stop:
            inputs = {"into": rows(start, stop), "features": features, "at": at}
            pieces.append(call("splice", inputs, OpContext(start=start, stop=stop))["result"])
    if pieces:
        np.testing.assert_array_equal(np.concatenate(pieces, 1), wanted)


def test_splice_without_a_loop_takes_the_whole_prompt(call: Any) -> None:
    found = call("splice", {"into": rows(0, 4), "features": np.full((2, 2), 9.0), "at": np.array([1, 2])})["result"]
    assert found[0, :, 0].tolist() == [0, 9, 9, 3]


def test_splice_gives_a_step_beyond_all_positions_back_as_it_is(call: Any) -> None:
    into = rows(8, 9)
    inputs = {"into": into, "features": [np.ones((1, 2, 2))], "at": [np.array([1, 2])]}
    assert call("splice", inputs, OpContext(start=8, stop=9))["result"] is into
    assert call("splice", {"into": into}, OpContext(start=8, stop=9))["result"] is into


def test_splice_changes_only_what_it_owns(call: Any) -> None:
    inputs = {"into": rows(0, 2), "features": [np.full((1, 1, 2), 9, np.float32)], "at": [np.array([1])]}
    kept = call("splice", inputs, OpContext(stop=2))["result"]
    assert kept is not inputs["into"]
    assert inputs["into"][0, 1, 0] == 1
    changed = call("splice", inputs, OpContext(stop=2, owned=frozenset({"into"})))["result"]
    assert changed is inputs["into"]
    assert changed[0, :, 0].tolist() == [0, 9]


@pytest.mark.parametrize(
    ("features", "at"),
    [
        ([np.ones((1, 3, 2))], [np.array([1, 2])]),
        ([np.ones((1, 1, 2))], [np.array([1]), np.array([2])]),
        ([], [np.array([1])]),
        ([np.ones((1, 1, 2))], []),
        ([np.ones((1, 1, 3))], [np.array([1])]),
    ],
)
def test_splice_refuses_features_that_do_not_fill_the_slots(call: Any, features: Any, at: Any) -> None:
    with pytest.raises(RequestError, match="here"):
        call("splice", {"into": rows(0, 4), "features": features, "at": at}, OpContext(stage="here", stop=4))


def test_position_mask_marks_the_positions_of_a_chunk(call: Any) -> None:
    at = [np.array([1, 2]), np.array([5])]
    assert call("position_mask", {"at": at}, OpContext(start=2, stop=6))["result"].tolist() == [[1, 0, 0, 1]]
    assert call("position_mask", {"at": at}, length=7)["result"].tolist() == [[0, 1, 1, 0, 0, 1, 0]]
    assert call("position_mask", {}, length=2, dtype="bool")["result"].tolist() == [[False, False]]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(5, 7))
def test_mask_marks_the_first_of_each_row(call: Any, lengths: list[int], size: int) -> None:
    found = call("mask", {"length": np.array(lengths)}, size=size)["result"]
    assert found.tolist() == [[int(i < length) for i in range(size)] for length in lengths]


def test_mask_is_as_long_as_the_longest_row(call: Any) -> None:
    assert call("mask", {"length": 3})["result"].tolist() == [[1, 1, 1]]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.booleans(), st.data())
def test_attention_mask_is_zero_where_one_may_look(call: Any, used: list[int], causal: bool, data: Any) -> None:
    total = len(used)
    queries = data.draw(st.integers(1, total))
    window = data.draw(st.none() | st.integers(1, total))
    params = {"causal": causal, "queries": queries, "low": -5, **({"window": window} if window else {})}
    found = call("attention_mask", {"mask": np.array([used])}, **params)["result"]
    assert found.shape == (1, 1, queries, total)
    for row in range(queries):
        i = total - queries + row
        for j in range(total):
            seen = used[j] and (j <= i or not causal) and (window is None or j > i - window)
            assert found[0, 0, row, j] == (0 if seen else -5)


def test_grid_positions_count_text_on_all_axes_and_lay_pictures_in_their_grid(call: Any) -> None:
    inputs = {"length": 10, "at": [np.arange(2, 8)], "grids": [np.array([1, 4, 6])]}
    found = call("grid_positions", inputs, merge=2)
    time, row, column = found["positions"].tolist()
    assert time == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6]
    assert row == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6]
    assert column == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6]
    assert 10 + int(found["offset"]) == 7  # the next token's position
    flat = call("grid_positions", {"length": 3})
    assert flat["positions"].tolist() == [[0, 1, 2]] * 3
    assert flat["offset"] == 0


@pytest.mark.parametrize(
    ("at", "grids"),
    [
        ([np.arange(2, 5)], [np.array([1, 2, 2])]),
        ([np.array([1, 3])], [np.array([1, 1, 2])]),
        ([np.array([1, 2])], []),
    ],
)
def test_grids_that_do_not_fill_their_slots_are_refused(call: Any, at: Any, grids: Any) -> None:
    with pytest.raises(RequestError, match="here"):
        call("grid_positions", {"length": 9, "at": at, "grids": grids})


@pytest.mark.parametrize(
    ("name", "inputs", "params"),
    [
        ("mask", {"length": [3]}, {"size": 2}),
        ("mask", {"length": [-1]}, {}),
        ("attention_mask", {"mask": [[1, 1]]}, {"queries": 3}),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, name: str, inputs: dict[str, Any], params: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="here"):
        call(name, inputs, **params)

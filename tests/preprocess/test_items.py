"""Items of inputs: what is published, how many there may be, and digests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec
from genai_pipeline.preprocess.items import DIGEST, check_count, item_digest, publish, with_digest
from genai_pipeline.problems import Location

SPEC = InputSpec(Location("x.yaml"), "images", "image")


def test_a_single_input_publishes_its_item_and_its_fields() -> None:
    item = {"pixels": "P", "grid": "G"}
    assert publish(SPEC, [item], ["grid", "mask"], many=False) == {
        "images": item,
        "images.grid": "G",
        "images.mask": None,
        "images.pixels": "P",
    }
    assert publish(SPEC, [], ["grid"], many=False) == {"images": None, "images.grid": None}


def test_a_list_publishes_each_field_as_a_list() -> None:
    items = [{"pixels": 1, "grid": 2}, {"pixels": 3}]
    assert publish(SPEC, items, [], many=True) == {
        "images": items,
        "images.pixels": [1, 3],
        "images.grid": [2, None],
    }
    assert publish(SPEC, [], ["pixels"], many=True) == {"images": [], "images.pixels": []}


@pytest.mark.parametrize(
    ("fields", "count", "many", "says"),
    [
        ({}, 2, False, "takes one item, not 2"),
        ({}, 0, False, "takes one item, not 0"),
        ({"max_items": 2}, 3, True, "takes at most 2 items, not 3"),
        ({"min_items": 2}, 1, True, "takes at least 2 items, not 1"),
        ({"min_items": 1}, 0, True, "takes at least 1 items, not 0"),
    ],
)
def test_too_many_and_too_few_are_refused_by_name(fields: Any, count: int, many: bool, says: str) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        check_count(replace(SPEC, **fields), count, many=many)
    assert caught.value.param == "images"


def test_counts_within_bounds_pass() -> None:
    for count in (0, 1, 9):
        check_count(SPEC, count, many=True)
    check_count(SPEC, 1, many=False)
    check_count(replace(SPEC, min_items=1, max_items=2), 2, many=True)


def test_digests_tell_apart_what_is_different() -> None:
    ones = np.ones(4, np.float32)
    different: list[dict[str, Any]] = [
        {},
        {"a": None},
        {"a": ones},
        {"b": ones},
        {"a": ones.reshape(2, 2)},
        {"a": ones.view(np.int32)},
        {"a": ones[:3]},
        {"a": np.float32(1)},
        {"a": 1},
        {"a": 1.0},
        {"a": "1"},
        {"a": [ones]},
        {"a": [{"c": ones}]},
        {"a": ones, "b": ones},
        {"a": np.array(["1"])},
    ]
    assert len({item_digest(item) for item in different}) == len(different)
    assert len(item_digest({})) == 16


def test_equal_fields_have_equal_digests_however_they_lie_in_memory() -> None:
    wide = np.arange(16, dtype=np.float32).reshape(4, 4)
    assert item_digest({"a": wide[:, ::2], "b": 1}) == item_digest({"b": 1, "a": wide[:, ::2].copy()})
    assert item_digest({"a": wide.T}) == item_digest({"a": np.ascontiguousarray(wide.T)})


def test_items_inside_an_item_have_digests_of_their_own() -> None:
    made = with_digest({"seconds": 2.0, "windows": [{"start": 0.0}, {"start": 1.0}]})
    assert {len(made[DIGEST])} == {len(window[DIGEST]) for window in made["windows"]} == {16}
    assert made["windows"][0][DIGEST] == item_digest({"start": 0.0}) != made["windows"][1][DIGEST]
    assert with_digest({"windows": [{"start": 0.5}]})[DIGEST] != with_digest({"windows": [{"start": 0.0}]})[DIGEST]

"""Tensors, vectors and items of a request: what is taken, converted, and refused by name."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec
from genai_pipeline.preprocess.tensor_inputs import is_many, read_values
from genai_pipeline.problems import Location


def spec_of(modality: Any = "tensor", **options: Any) -> InputSpec:
    return InputSpec(Location("x.yaml"), "series", modality, options=options)


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        ("float32", [1, 2.5], np.array([1, 2.5], np.float32)),
        ("float32", np.array([1.1, 2.2]), np.array([1.1, 2.2], np.float32)),
        ("float16", [0.1, float("inf"), float("nan")], np.array([0.1, np.inf, np.nan], np.float16)),
        ("bfloat16", [1.5], np.array([1.5], ml_dtypes.bfloat16)),
        ("int64", [1, -2], np.array([1, -2], np.int64)),
        ("uint8", np.array([0, 255]), np.array([0, 255], np.uint8)),
        ("bool", [[True], [False]], np.array([[True], [False]])),
        ("string", ["a", "bc"], np.array(["a", "bc"], object)),
        ("float32", [], np.zeros(0, np.float32)),
        ("int64", 7, np.array(7)),
    ],
)
def test_values_become_the_declared_type(dtype: str, given: Any, expected: Any) -> None:
    read = read_values(spec_of(dtype=dtype), given, "series")
    assert read.dtype == expected.dtype
    np.testing.assert_array_equal(read, expected)


@pytest.mark.parametrize(
    ("dtype", "given", "says"),
    [
        ("int64", [1.0, 2.0], "must be int64, not float64"),
        ("uint8", [256], "has numbers that uint8 cannot hold"),
        ("uint64", [-1], "has numbers that uint64 cannot hold"),
        ("float16", [1e9], "has numbers that float16 cannot hold"),
        ("float32", [True], "must be float32, not bool"),
        ("float32", [1, True], "mixes booleans and numbers"),
        ("float32", ["1", 2], "mixes booleans and numbers|must be float32"),
        ("bool", [1], "must be bool, not int64"),
        ("float32", "text", "must be float32"),
        ("string", [1], "must be texts"),
        ("float32", [[1], [2, 3]], "is no array"),
        ("float32", {"a": 1}, "must be numbers or texts"),
        ("float32", None, "must be numbers or texts"),
        ("float32", [object()], "must be numbers or texts"),
        ("float32", [1j], "must be numbers or texts"),
    ],
)
def test_what_would_be_changed_is_refused_by_name(dtype: str, given: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        read_values(spec_of(dtype=dtype), given, "series[1]")
    assert caught.value.param == "series[1]"


def test_shapes_are_sizes_and_names_that_stand_for_one_size() -> None:
    spec = spec_of(dtype="float32", shape=("n", 3, "n"))
    assert read_values(spec, np.zeros((2, 3, 2)), "series").shape == (2, 3, 2)
    for shape in ((2, 3), (2, 3, 4), (2, 4, 2), (2, 3, 2, 1)):
        with pytest.raises(RequestError, match=r"must have the shape \[n, 3, n\], not"):
            read_values(spec, np.zeros(shape), "series")


def test_a_vector_has_one_axis() -> None:
    assert read_values(spec_of("vector"), [1, 2], "v").tolist() == [1, 2]
    for given in (1, [[1]]):
        with pytest.raises(RequestError, match="must have one axis"):
            read_values(spec_of("vector"), given, "v")


def test_items_stay_as_they_are_unless_a_type_is_declared() -> None:
    given = ({"a": 1}, "b", 3)
    assert read_values(spec_of("items"), given, "i") == list(given)
    assert read_values(spec_of("items", dtype="int64"), [1, 2], "i").dtype == np.int64
    assert read_values(spec_of("items", shape=(2,)), ["a", "b"], "i") == ["a", "b"]
    for wrong in ("text", {"a": 1}, 5):
        with pytest.raises(RequestError, match="must be a list"):
            read_values(spec_of("items"), wrong, "i")
    with pytest.raises(RequestError, match="must have the shape"):
        read_values(spec_of("items", shape=(2,)), ["a"], "i")


def test_what_a_list_of_tensors_is() -> None:
    assert is_many(spec_of("tensor"), [np.zeros(2), np.zeros(3)])
    assert not is_many(spec_of("tensor"), np.zeros((2, 3)))
    assert not is_many(spec_of("vector"), [1.0, 2.0])
    assert is_many(spec_of("vector"), [[1.0], [2.0, 3.0]])

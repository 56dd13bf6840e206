from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.ops.warping import homography


def ramp(height: int = 100, width: int = 300) -> Any:
    """A picture whose two channels are x and y."""
    ys, xs = np.mgrid[0:height, 0:width]
    return np.stack([xs, ys]).astype(np.float32)[np.newaxis]


@given(st.floats(5, 60), st.floats(5, 30), st.floats(40, 150), st.floats(20, 50))
def test_an_upright_crop_is_an_even_walk_over_its_part(
    call: Any, left: float, top: float, width: float, height: float
) -> None:
    quad = np.array([[left, top], [left + width, top], [left + width, top + height], [left, top + height]])
    (crop,) = call("crop_quads", {"image": ramp(), "quads": quad[np.newaxis]}, height=20)["crops"]
    columns = max(1, round(20 * width / height)) if height < 1.5 * width else None
    assert columns is not None
    assert crop.shape == (1, 2, 20, columns)
    assert crop.dtype == np.float32
    x = left + (np.arange(columns) + 0.5) / columns * width
    y = top + (np.arange(20) + 0.5) / 20 * height
    np.testing.assert_allclose(crop[0, 0], np.broadcast_to(x, (20, columns)), atol=1e-2)
    np.testing.assert_allclose(crop[0, 1], np.broadcast_to(y[:, np.newaxis], (20, columns)), atol=1e-2)


def test_a_perspective_crop_follows_its_edges(call: Any) -> None:
    quad = np.array([[10.0, 10.0], [110.0, 20.0], [110.0, 60.0], [10.0, 50.0]])  # a parallelogram: an affine map
    (crop,) = call("crop_quads", {"image": ramp(), "quads": quad[np.newaxis]}, height=20)["crops"]
    rows, columns = crop.shape[2:]
    v, u = np.meshgrid((np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns, indexing="ij")
    np.testing.assert_allclose(crop[0, 0], 10 + 100 * u, atol=1e-2)
    np.testing.assert_allclose(crop[0, 1], 10 + 10 * u + 40 * v, atol=1e-2)


@given(st.lists(st.floats(-3, 3), min_size=8, max_size=8))
def test_a_homography_brings_four_points_to_four_others(moves: list[float]) -> None:
    square = np.array([[0.0, 0.0], [1, 0], [1, 1], [0, 1]])
    target = 10 * square + np.array(moves).reshape(4, 2)
    mapped = np.concatenate([square, np.ones((4, 1))], 1) @ homography(square, target).T
    np.testing.assert_allclose(mapped[:, :2] / mapped[:, 2:], target, atol=1e-6)


def test_high_quads_are_turned_left(call: Any) -> None:
    quad = np.array([[10.0, 10.0], [30.0, 10.0], [30.0, 90.0], [10.0, 90.0]])
    (crop,) = call("crop_quads", {"image": ramp(), "quads": quad[np.newaxis]}, height=20)["crops"]
    assert crop.shape == (1, 2, 20, 80)
    assert crop[0, 0, 0, 0] == pytest.approx(29.5, abs=1e-2)  # its top left is the top right of the picture
    assert crop[0, 1, 0].tolist() == pytest.approx([10.5 + i for i in range(80)], abs=1e-2)
    kept = call("crop_quads", {"image": ramp(), "quads": quad[np.newaxis]}, height=20, turn_from=5)["crops"][0]
    assert kept.shape == (1, 2, 20, 5)


def test_large_crops_are_averages_not_samples(call: Any) -> None:
    stripes = np.zeros((1, 1, 64, 64), np.float32)
    stripes[:, :, ::2] = 1
    quad = np.array([[0.0, -0.5], [63.0, -0.5], [63.0, 63.5], [0.0, 63.5]])
    (crop,) = call("crop_quads", {"image": stripes, "quads": quad[np.newaxis]}, height=4)["crops"]
    np.testing.assert_allclose(crop, 0.5, atol=0.04)


def test_no_quads_no_crops(call: Any) -> None:
    assert call("crop_quads", {"image": ramp(), "quads": np.zeros((0, 4, 2))})["crops"] == []
    with pytest.raises(RequestError, match="quadrilaterals"):
        call("crop_quads", {"image": ramp(), "quads": np.zeros((1, 3, 2))})
    with pytest.raises(RequestError, match="quadrilaterals"):
        call("crop_quads", {"image": ramp(), "quads": np.full((1, 4, 2), np.nan)})


@pytest.mark.parametrize(("degrees", "first"), [(90, 3), (180, 6), (270, 4)])
def test_rotate_if_turns_counterclockwise(call: Any, degrees: int, first: int) -> None:
    picture = np.array([[[[1, 2, 3], [4, 5, 6]]]])
    found = call("rotate_if", {"image": picture, "scores": [[0.1, 0.9]]}, label=1, degrees=degrees)["result"]
    assert found[0, 0, 0, 0] == first
    assert found.shape[2:] == ((2, 3) if degrees == 180 else (3, 2))


@pytest.mark.parametrize("scores", [[[0.6, 0.4]], [[0.2, 0.8]]])
def test_rotate_if_leaves_what_is_not_sure(call: Any, scores: Any) -> None:
    picture = np.ones((1, 1, 2, 3))
    assert call("rotate_if", {"image": picture, "scores": scores}, label=1, min_score=0.85)["result"] is picture


@pytest.mark.parametrize("params", [{"label": 2}, {"label": 1, "degrees": 100}])
def test_rotate_if_with_what_there_is_not(call: Any, params: dict[str, int]) -> None:
    with pytest.raises(PackageError, match="degrees"):
        call("rotate_if", {"image": np.ones((1, 1, 2, 3)), "scores": [[0.5, 0.5]]}, **params)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_restore_size_reads_between_pixel_centres(call: Any, h: int, w: int, height: int, width: int) -> None:
    value = np.random.default_rng(h * 10 + w).random((1, 1, h, w), np.float32)
    inputs = {"value": value, "original": np.array([height, width])}
    smooth, near = (call("restore_size", inputs, resample=kind)["result"][0, 0] for kind in ("bilinear", "nearest"))
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) * h / height, (j + 0.5) * w / width
            assert near[i, j] == value[0, 0, int(y), int(x)]
            y, x = min(max(y - 0.5, 0), h - 1), min(max(x - 0.5, 0), w - 1)
            top, left = int(y), int(x)
            below, right = min(top + 1, h - 1), min(left + 1, w - 1)
            corners = value[0, 0, [top, top, below, below], [left, right, left, right]]
            dy, dx = y - top, x - left
            weights = [(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx]
            assert smooth[i, j] == pytest.approx(float(corners @ np.array(weights)), abs=1e-5)


def test_a_size_is_two_numbers(call: Any) -> None:
    with pytest.raises(RequestError, match="size"):
        call("restore_size", {"value": np.ones((1, 1, 2, 2)), "original": np.array([0, 4])})

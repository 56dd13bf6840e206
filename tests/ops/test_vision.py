from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import PackageError, RequestError


def marked(size: tuple[int, int], *rectangles: tuple[int, int, int, int, float]) -> Any:
    chances = np.zeros((1, 1, *size), np.float32)
    for left, top, width, height, chance in rectangles:
        chances[0, 0, top : top + height, left : left + width] = chance
    return chances


@given(st.integers(5, 40), st.integers(5, 20), st.integers(4, 80), st.integers(4, 20), st.floats(0, 3))
def test_an_upright_area_becomes_its_grown_rectangle(
    call: Any, left: int, top: int, width: int, height: int, grow: float
) -> None:
    found = call("boxes_from_map", {"map": marked((60, 160), (left, top, width, height, 0.8))}, grow=grow)
    w, h = width - 1, height - 1  # between the centres of the outermost pixels
    more = w * h * grow / (2 * (w + h))
    x = [np.clip(edge, 0, 159) for edge in (left - more, left + w + more)]
    y = [np.clip(edge, 0, 59) for edge in (top - more, top + h + more)]
    wanted = [[x[0], y[0]], [x[1], y[0]], [x[1], y[1]], [x[0], y[1]]]
    np.testing.assert_allclose(found["boxes"], [wanted], atol=1e-3)
    np.testing.assert_allclose(found["scores"], [0.8], rtol=1e-5)


def test_a_turned_area_becomes_a_turned_rectangle(call: Any) -> None:
    ys, xs = np.mgrid[0:200, 0:300]
    angle = math.radians(20)
    u = (xs - 150) * math.cos(angle) + (ys - 100) * math.sin(angle)
    v = -(xs - 150) * math.sin(angle) + (ys - 100) * math.cos(angle)
    chances = ((np.abs(u) < 80) & (np.abs(v) < 12)).astype(np.float32)[np.newaxis, np.newaxis]
    (corners,) = call("boxes_from_map", {"map": chances}, grow=0)["boxes"]
    for (x, y), (a, b) in zip(corners, ((-80, -12), (80, -12), (80, 12), (-80, 12)), strict=True):
        place = (150 + a * math.cos(angle) - b * math.sin(angle), 100 + a * math.sin(angle) + b * math.cos(angle))
        assert math.dist((x, y), place) < 1.5


def test_faint_and_small_areas_are_dropped_and_lines_come_in_order(call: Any) -> None:
    chances = marked(
        (90, 200), (100, 12, 60, 10, 0.9), (5, 10, 60, 10, 0.8), (5, 60, 60, 10, 0.4), (150, 60, 2, 10, 0.9)
    )
    found = call("boxes_from_map", {"map": chances}, grow=0)
    assert found["boxes"][:, 0].tolist() == [[5, 10], [100, 12]]
    np.testing.assert_allclose(found["scores"], [0.8, 0.9], rtol=1e-5)
    assert call("boxes_from_map", {"map": chances}, most=1)["boxes"].shape == (1, 4, 2)
    nothing = call("boxes_from_map", {"map": marked((9, 9))})
    assert (nothing["boxes"].shape, nothing["scores"].shape) == ((0, 4, 2), (0,))


def test_boxes_count_in_pixels_of_the_original(call: Any) -> None:
    inputs = {"map": marked((40, 100), (10, 10, 30, 10, 0.9)), "original": np.array([80, 300])}
    (corners,) = call("boxes_from_map", inputs, grow=0)["boxes"]
    np.testing.assert_allclose(corners[0], [10.5 * 3 - 0.5, 10.5 * 2 - 0.5])
    np.testing.assert_allclose(corners[2], [39.5 * 3 - 0.5, 19.5 * 2 - 0.5])


def test_a_map_of_several_pictures_is_refused(call: Any) -> None:
    with pytest.raises(RequestError, match=r"\[2, 1, 4, 4\]"):
        call("boxes_from_map", {"map": np.zeros((2, 1, 4, 4))})


BOXES = np.array([[[0, 0, 10, 10], [1, 0, 11, 10], [0, 0, 10, 10], [50, 50, 60, 60]]], np.float32)
SCORES = np.array([[[0.9, 0], [0.8, 0], [0, 0.7], [0.1, 0.2]]], np.float32)


def test_of_overlapping_boxes_with_one_label_the_best_stays(call: Any) -> None:
    found = call("detections", {"boxes": BOXES, "scores": SCORES, "labels": ["cat", "dog"]})
    assert [(item["label"], item["box"]) for item in found["items"]] == [
        ("cat", [0, 0, 10, 10]),
        ("dog", [0, 0, 10, 10]),
    ]
    assert [item["score"] for item in found["items"]] == pytest.approx([0.9, 0.7])
    assert found["boxes"].shape == (2, 4)
    apart = call("detections", {"boxes": BOXES, "scores": SCORES}, overlap=0.9, min_score=0.15)  # 9 of 11 columns
    assert [item["label"] for item in apart["items"]] == [0, 0, 1, 1]
    assert len(call("detections", {"boxes": BOXES, "scores": SCORES}, most=1)["items"]) == 1


@pytest.mark.parametrize(("form", "numbers"), [("corner_size", [2, 4, 6, 8]), ("centre_size", [5, 8, 6, 8])])
def test_forms_of_boxes(call: Any, form: str, numbers: list[int]) -> None:
    inputs = {"boxes": np.array([[numbers]], np.float32), "scores": np.array([[[1.0]]]), "original": np.array([20, 40])}
    found = call("detections", inputs, form=form, size=[10, 10])
    assert found["boxes"].tolist() == [[2 * 4, 4 * 2, 8 * 4, 12 * 2]]
    with pytest.raises(PackageError, match="'size'"):
        call("detections", inputs, form=form)


def test_boxes_and_scores_belong_together(call: Any) -> None:
    with pytest.raises(RequestError, match="4 boxes and scores of 3"):
        call("detections", {"boxes": BOXES, "scores": SCORES[:, :3]})

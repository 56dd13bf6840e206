from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from genai_pipeline.ops.geometry import areas, clockwise, hull, inside, least_rectangle, reading_order

MASKS = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9))
POINTS = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=12).map(
    lambda points: np.array(points, np.float64)
)


def flooded(mask: Any) -> set[frozenset[tuple[int, int]]]:
    """The areas of a mask by walking from pixel to pixel."""
    left = {(int(i), int(j)) for i, j in np.argwhere(mask)}
    found = set()
    while left:
        area, edge = set(), [left.pop()]
        while edge:
            i, j = edge.pop()
            area.add((i, j))
            near = {(i + a, j + b) for a in (-1, 0, 1) for b in (-1, 0, 1)} & left
            left -= near
            edge += near
        found.add(frozenset(area))
    return found


@settings(max_examples=300)
@given(MASKS)
def test_areas_are_pixels_that_touch(mask: Any) -> None:
    found = areas(mask)
    pixels = [{(int(r), c) for r, first, last in area.runs for c in range(first, last + 1)} for area in found]
    assert {frozenset(area) for area in pixels} == flooded(mask)
    assert [area.pixels for area in found] == [len(area) for area in pixels]
    firsts = [min(area) for area in pixels]
    assert firsts == sorted(firsts)


def test_a_comb_is_one_area_and_its_border_is_where_its_hull_is() -> None:
    mask = np.zeros((6, 9), bool)
    mask[:, ::2] = True
    mask[5] = True
    (area,) = areas(mask)
    assert sorted(map(tuple, hull(area.border).tolist())) == [(0, 0), (0, 5), (8, 0), (8, 5)]


@given(POINTS)
def test_every_point_lies_on_the_inner_side_of_every_edge_of_the_hull(points: Any) -> None:
    corners = hull(points)
    assert {tuple(corner) for corner in corners.tolist()} <= {tuple(point) for point in points.tolist()}
    if len(corners) < 3:
        return
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        assert all((x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) >= 0 for x, y in points)


@given(POINTS)
def test_no_turned_rectangle_around_points_is_smaller(points: Any) -> None:
    best = least_rectangle(points)
    for degrees in range(0, 90, 3):
        angle = math.radians(degrees)
        u = points @ np.array([math.cos(angle), math.sin(angle)])
        v = points @ np.array([-math.sin(angle), math.cos(angle)])
        assert best.width * best.height <= np.ptp(u) * np.ptp(v) + 1e-6
    offsets = points - best.centre
    assert (np.abs(offsets @ best.along) <= best.width / 2 + 1e-6).all()
    assert (np.abs(offsets @ np.array([-best.along[1], best.along[0]])) <= best.height / 2 + 1e-6).all()


@pytest.mark.parametrize("degrees", [-30, -5, 0, 5, 30])
def test_corners_go_clockwise_from_the_top_left(degrees: float) -> None:
    angle = math.radians(degrees)
    along, across = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
    signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    wanted = np.array([a * 40 * along + b * 10 * across for a, b in signs])
    found = least_rectangle(np.concatenate([wanted, wanted * 0.5]))
    np.testing.assert_allclose(found.corners(), wanted, atol=1e-9)
    np.testing.assert_allclose(clockwise(wanted[[2, 0, 3, 1]]), wanted)
    np.testing.assert_allclose(found.grown(5).corners()[0], -45 * along - 15 * across, atol=1e-9)


def test_inside_are_pixels_whose_centres_are() -> None:
    corners = np.array([[1.0, 1.0], [5.0, 1.0], [5.0, 3.0], [1.0, 3.0]])
    rows, columns, within = inside(corners, (4, 4))
    assert (rows, columns) == (slice(1, 4), slice(1, 4))
    assert within.all()
    diamond = np.array([[2.0, 0.0], [4.0, 2.0], [2.0, 4.0], [0.0, 2.0]])
    rows, columns, within = inside(diamond, (9, 9))
    for i in range(5):
        for j in range(5):
            assert within[i, j] == (abs(i - 2) + abs(j - 2) <= 2)


def box(left: float, top: float, width: float, height: float) -> Any:
    return [[left, top], [left + width, top], [left + width, top + height], [left, top + height]]


def test_reading_goes_line_by_line() -> None:
    boxes = [box(200, 2, 50, 10), box(0, 20, 50, 10), box(0, 0, 50, 10), box(100, 23, 50, 10), box(90, -3, 30, 10)]
    assert reading_order(np.array(boxes)) == [2, 4, 0, 1, 3]
    assert reading_order(np.zeros((0, 4, 2))) == []

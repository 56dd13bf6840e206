"""Plane geometry of boxes: connected areas, hulls, rectangles of least area, reading order. Points are (x, y)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Points = npt.NDArray[np.float64]  # [n, 2]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Area:
    """A connected area: its horizontal runs of pixels [n, 3] as row, first column and last column."""

    runs: npt.NDArray[np.int64]

    @property
    def pixels(self) -> int:
        """How many pixels it has."""
        return int((self.runs[:, 2] - self.runs[:, 1] + 1).sum())

    @property
    def border(self) -> Points:
        """The first and last pixel of every row, which its hull is made of."""
        rows, starts = np.unique(self.runs[:, 0], return_index=True)
        ends = np.minimum.reduceat(self.runs[:, 1], starts), np.maximum.reduceat(self.runs[:, 2], starts)
        return np.concatenate([np.stack([end, rows], 1) for end in ends]).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Rectangle:
    """A rectangle at an angle: its centre, the unit vector along its width, and its width and height."""

    centre: Points
    along: Points
    width: float
    height: float

    def grown(self, distance: float) -> Rectangle:
        """With ``distance`` more on every side."""
        return Rectangle(self.centre, self.along, self.width + 2 * distance, self.height + 2 * distance)

    def corners(self) -> Points:
        """Four corners [4, 2], clockwise on the screen from the top left one."""
        across = np.array([-self.along[1], self.along[0]])
        half = self.along * self.width / 2, across * self.height / 2
        signs = ((-1, -1), (1, -1), (1, 1), (-1, 1))
        return clockwise(np.array([self.centre + a * half[0] + b * half[1] for a, b in signs]))


def areas(mask: Mask) -> list[Area]:
    """The areas of pixels that touch each other at a side or corner, from top to bottom by their first pixel."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, firsts = np.nonzero(edges == 1)
    lasts = np.nonzero(edges == -1)[1] - 1
    if not len(rows):
        return []
    roots = _roots(len(rows), *_touching(rows, firsts, lasts, mask.shape[1] + 2))
    runs = np.stack([rows, firsts, lasts], 1)
    order = np.argsort(roots, kind="stable")
    cuts = np.flatnonzero(np.diff(roots[order])) + 1
    return [Area(part) for part in np.split(runs[order], cuts)]


def _touching(rows: Ints, firsts: Ints, lasts: Ints, stride: int) -> tuple[Ints, Ints]:
    """Pairs of runs of neighbouring rows that touch, as two arrays of their numbers. Runs are in reading order."""
    above = (rows - 1) * stride
    low = np.searchsorted(rows * stride + lasts, above + firsts - 1)  # the first run above that does not end too early
    high = np.searchsorted(rows * stride + firsts, above + lasts + 1, side="right")  # behind the last one
    counts = high - low
    runs = np.repeat(np.arange(len(rows)), counts)
    nth = np.arange(len(runs)) - np.repeat(np.cumsum(counts) - counts, counts)
    return runs, low[runs] + nth


def _roots(count: int, a: Ints, b: Ints) -> Ints:
    """For each of ``count`` runs the least number among those it is joined with by pairs (a, b)."""
    roots = np.arange(count)
    while True:
        one, two = roots[a], roots[b]
        if (one == two).all():
            return roots
        np.minimum.at(roots, np.maximum(one, two), np.minimum(one, two))
        while (roots[roots] != roots).any():
            roots = roots[roots]


def hull(points: Points) -> Points:
    """The convex hull of points, by Andrew's monotone chain, without points on its edges."""
    found = np.unique(points, axis=0)
    if len(found) < 3:
        return found
    lower = _chain(found.tolist())
    upper = _chain(found[::-1].tolist())
    return np.array(lower[:-1] + upper[:-1])


def _chain(points: list[list[float]]) -> list[list[float]]:
    chain: list[list[float]] = []
    for x, y in points:
        while len(chain) > 1:
            (x1, y1), (x2, y2) = chain[-2:]
            if (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) > 0:
                break
            chain.pop()
        chain.append([x, y])
    return chain


def least_rectangle(points: Points) -> Rectangle:
    """The rectangle of least area around points: one side lies on an edge of their hull, so all edges are tried."""
    corners = hull(points)
    edges = np.roll(corners, -1, axis=0) - corners
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    along = edges[lengths > 0] / lengths[lengths > 0, np.newaxis] if lengths.any() else np.array([[1.0, 0.0]])
    across = np.stack([-along[:, 1], along[:, 0]], 1)
    u, v = along @ corners.T, across @ corners.T  # [edges, points]
    widths, heights = np.ptp(u, axis=1), np.ptp(v, axis=1)
    best = int(np.argmin(widths * heights))
    middle = [(side[best].max() + side[best].min()) / 2 for side in (u, v)]
    centre = along[best] * middle[0] + across[best] * middle[1]
    return Rectangle(centre, along[best], float(widths[best]), float(heights[best]))


def clockwise(corners: Points) -> Points:
    """Four corners, clockwise on the screen from the top left one: of the two leftmost ones, the upper."""
    order = np.argsort(corners[:, 0], kind="stable")
    left, right = corners[order[:2]], corners[order[2:]]
    left, right = left[np.argsort(left[:, 1], kind="stable")], right[np.argsort(right[:, 1], kind="stable")]
    return np.array([left[0], right[0], right[1], left[1]])


def inside(corners: Points, size: tuple[int, int]) -> tuple[slice, slice, Mask]:
    """The pixels of a picture of ``size`` (height, width) whose centres lie in a convex quadrilateral.

    Gives the rows and columns around them, and which of those pixels they are.
    """
    first = np.clip(np.floor(corners.min(0)), 0, (size[1] - 1, size[0] - 1)).astype(int)
    last = np.clip(np.ceil(corners.max(0)), 0, (size[1] - 1, size[0] - 1)).astype(int)
    xs, ys = np.arange(first[0], last[0] + 1), np.arange(first[1], last[1] + 1)[:, np.newaxis]
    within = np.ones((len(ys), len(xs)), bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        within &= (x2 - x1) * (ys - y1) - (y2 - y1) * (xs - x1) >= -1e-9
    return slice(first[1], last[1] + 1), slice(first[0], last[0] + 1), within


def reading_order(boxes: Points) -> list[int]:
    """Indices of boxes [n, 4, 2] line by line: a box belongs to a line if its middle lies between the edges of the
    line's first box, or that one's middle between its own."""
    tops, bottoms, lefts = boxes[:, :, 1].min(1), boxes[:, :, 1].max(1), boxes[:, :, 0].min(1)
    middles = (tops + bottoms) / 2
    lines: list[list[int]] = []
    for index in map(int, np.argsort(middles, kind="stable")):
        first = lines[-1][0] if lines else -1
        if lines and (middles[index] < bottoms[first] or middles[first] > tops[index]):
            lines[-1].append(index)
        else:
            lines.append([index])
    return list(_flat(lines, lefts))


def _flat(lines: list[list[int]], lefts: Any) -> Iterator[int]:
    for line in lines:
        yield from sorted(line, key=lambda index: float(lefts[index]))

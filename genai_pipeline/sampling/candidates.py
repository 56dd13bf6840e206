"""Finding the best of many numbers without sorting them all, exactly.

A row of a large vocabulary is cut into blocks, and the best of each block found in one pass. The k-th best of these is
no better than the k-th best of all, because k blocks each hold a number at least that good: numbers that reach it are a
small set that holds the k best. Ties go to the lowest position everywhere.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DEPTH: Final = 64  # numbers per block
FEW: Final = 4096  # numbers below which blocks do not pay
_PREFIXES: Final = (64, 1024, 8192)  # sizes that are tried for a prefix before everything is sorted
_LEAST_GAIN: Final = 4  # numbers per number of such a prefix, below which sorting everything is as fast

Numbers = NDArray[Any]  # float32 or float64
Positions = NDArray[np.int64]


def block_maxima(numbers: Numbers) -> Numbers:
    """The largest number of each block; a NaN in a block is its largest. Small rows are their own blocks."""
    if len(numbers) < FEW:
        return numbers
    width = len(numbers) // DEPTH
    maxima: Numbers = numbers[: DEPTH * width].reshape(DEPTH, width).max(axis=0)
    rest = numbers[DEPTH * width :]  # fewer than DEPTH, which is fewer than blocks
    np.maximum(maxima[: len(rest)], rest, out=maxima[: len(rest)])
    return maxima


def kth_largest(numbers: Numbers, k: int) -> Any:
    """The k-th largest number, k from 1 to all."""
    ordered = numbers.copy()
    ordered.partition(len(numbers) - k)
    return ordered[len(numbers) - k]


def largest(numbers: Numbers, k: int, maxima: Numbers | None = None) -> Positions:
    """Ascending positions of the k largest numbers, those that are -inf left out."""
    if k >= len(numbers):
        found: Positions = (numbers > -np.inf).nonzero()[0]
        return found
    if maxima is None:
        maxima = block_maxima(numbers)
    bound = kth_largest(maxima if k <= len(maxima) else numbers, k)
    positions: Positions = (numbers >= bound if bound > -np.inf else numbers > -np.inf).nonzero()[0]
    if len(positions) <= k:
        return positions
    values = numbers[positions]
    exact = kth_largest(values, k)
    keep = values > exact
    equal = (values == exact).nonzero()[0]
    keep[equal[: k - np.count_nonzero(keep)]] = True
    kept: Positions = positions[keep]
    return kept


def best_first(numbers: Numbers, k: int) -> Positions:
    """Positions of the k largest numbers, largest first, those that are -inf left out."""
    positions = largest(numbers, k)
    order: Positions = positions[(-numbers[positions]).argsort(kind="stable")]
    return order


def best_prefix(scores: NDArray[np.float64], weights: NDArray[np.float64], mass: float) -> Positions:
    """Positions, best score first, of the fewest numbers whose weights add up to ``mass``; all if they never do.

    Sums run in the order of the scores, so that the result is bit for bit that of sorting everything.
    """
    maxima = block_maxima(scores)
    for count in _PREFIXES:
        if _LEAST_GAIN * count > len(scores):
            break  # what is left is sorted
        bound = kth_largest(maxima if count <= len(maxima) else scores, count)
        positions = (scores >= bound).nonzero()[0]
        order: Positions = positions[(-scores[positions]).argsort(kind="stable")]
        sums = weights[order].cumsum()
        if sums[-1] >= mass:
            return order[: sums.searchsorted(mass) + 1]
    order = (-scores).argsort(kind="stable")
    return order[: weights[order].cumsum().searchsorted(mass) + 1]

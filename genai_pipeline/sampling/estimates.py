"""Decisions about a whole vocabulary that float32 is enough for: they are those of float64, or none is made.

The total of all weights is estimated in float32, with a bound on its error: the exponent of a logit, which lies at most
104 below that of the peak (further ones weigh nothing), is rounded three times and so right within 1.9e-5; its
exponential within 2e-5 of its size. Where all totals within the bound lead to the same token or set of tokens, that is
what float64 gives, too; in the few other cases the caller computes everything in float64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.candidates import FEW, Positions, largest

_ERROR: Final = 5e-5  # relative, of weights and their sums: more than twice what is derived above
_LEAST_TEMPERATURE: Final = 1e-3  # exponents of lower ones leave float32
_COUNTS: Final = (64, 1024)  # how many of the likeliest tokens are tried for a nucleus
_BLOCK: Final = 256

Row = NDArray[np.float32]
Weights = NDArray[np.float64]


def estimable(row: Row, temperature: float) -> bool:
    """Whether estimates of this row are worth while and hold what they promise."""
    return len(row) >= FEW and temperature >= _LEAST_TEMPERATURE


def exact_weights(logits: Row, peak: float, temperature: float) -> Weights:
    """exp((logit - peak) / temperature) in float64; the largest weight of a row is 1."""
    weights = logits.astype(np.float64)
    weights -= peak
    weights /= temperature
    return np.exp(weights, out=weights)


def nucleus_of(
    row: Row, peak: float, maxima: Row, temperature: float, top_p: float
) -> tuple[Positions, Weights] | None:
    """The fewest likeliest tokens that reach ``top_p``, by rising id, and their weights; None where it is too close."""
    total = float(_rough_weights(row, peak, temperature).sum(dtype=np.float64))
    for count in _COUNTS:
        ids = largest(row, count, maxima)
        weights = exact_weights(row[ids], peak, temperature)
        order = (-weights).argsort(kind="stable")
        sums = weights[order].cumsum()
        least, most = sums.searchsorted([top_p * total * (1 - _ERROR), top_p * total * (1 + _ERROR)])
        if most < len(ids) and weights[order[most]] > weights[order[-1]]:  # no token outside weighs as much
            if least != most:
                return None
            positions = order[: most + 1]
            positions.sort()
            return ids[positions], weights[positions]
    return None


def draw_from_all(row: Row, peak: float, temperature: float, number: float) -> int | None:
    """The token into which ``number`` in [0, 1) falls, all tokens laid end to end; None where it is too close."""
    rough = _rough_weights(row, peak, temperature)
    sums = np.add.reduceat(rough, np.arange(0, len(rough), _BLOCK), dtype=np.float64).cumsum()
    point, margin = number * float(sums[-1]), 2 * _ERROR * float(sums[-1])
    block = int(sums.searchsorted(point, side="right"))
    start = block * _BLOCK
    inside = exact_weights(row[start : start + _BLOCK], peak, temperature).cumsum()
    rest = point - (float(sums[block - 1]) if block else 0.0)
    token = int(inside.searchsorted(rest, side="right"))
    if token == len(inside) or rest + margin >= inside[token]:
        return None
    before = float(inside[token - 1]) if token else 0.0
    return None if rest - margin < before and start + token else start + token


def _rough_weights(row: Row, peak: float, temperature: float) -> Row:
    weights: Row = row - np.float32(peak)
    weights /= np.float32(temperature)
    return np.exp(weights, out=weights)

"""Filters of the tokens that may be drawn: which of the candidates stay. Sources are in docs/sampling.md.

Each works on the distribution that the filters before it left, as float64 weights that need not add up to 1, in the
order of token ids. Each keeps at least one token; sets are exact, never approximated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.candidates import Positions, best_prefix, largest
from genai_pipeline.sampling.estimates import estimable, exact_weights, nucleus_of
from genai_pipeline.sampling.options import GenerationOptions

_SLACK = 1e-5  # relative; float32 rounds bounds by less than this

Weights = NDArray[np.float64]


class Candidates(NamedTuple):
    """Tokens that may be drawn, by rising id (``ids`` None: every id), and their unnormalised probabilities."""

    ids: Positions | None
    weights: Weights

    def keep(self, positions: Positions | NDArray[np.bool_]) -> Candidates:
        """The candidates at some positions, given by rising position or as truth values."""
        if self.ids is None:
            chosen = np.arange(len(self.weights))[positions]
            return Candidates(chosen, self.weights[chosen])
        return Candidates(self.ids[positions], self.weights[positions])

    def token(self, position: int) -> int:
        """The id of the candidate at a position."""
        return position if self.ids is None else int(self.ids[position])


def candidates(
    row: NDArray[np.float32], peak: float, maxima: NDArray[np.float32], options: GenerationOptions
) -> Candidates:
    """What temperature, top_k and top_p leave of a row whose largest logit is ``peak``; the largest weight is 1.

    Tokens that min_p is sure to drop are left out here where no filter before it needs them.
    """
    if options.top_k:
        ids = largest(row, options.top_k, maxima)
        found = Candidates(ids, exact_weights(row[ids], peak, options.temperature))
    elif options.top_p < 1:
        if estimable(row, options.temperature):
            sure = nucleus_of(row, peak, maxima, options.temperature, options.top_p)
            if sure is not None:
                return Candidates(*sure)
        found = Candidates(None, exact_weights(row, peak, options.temperature))
    elif options.min_p > 0:
        bound = peak + options.temperature * math.log(options.min_p)
        ids = (row >= bound - _SLACK * max(1.0, abs(bound), abs(peak))).nonzero()[0]
        found = Candidates(ids, exact_weights(row[ids], peak, options.temperature))
    else:
        found = Candidates(None, exact_weights(row, peak, options.temperature))
    return found.keep(nucleus(found.weights, options.top_p)) if options.top_p < 1 else found


def unfiltered(options: GenerationOptions) -> bool:
    """Whether every token may be drawn."""
    return not (
        options.top_k
        or options.top_p < 1
        or options.min_p
        or options.typical_p < 1
        or options.top_a
        or options.xtc_probability
        or options.mirostat
    )


def filtered(found: Candidates, options: GenerationOptions, coin: float, most_surprise: float | None) -> Candidates:
    """The candidates after every further filter that ``options`` switch on, in the documented order.

    ``coin`` in [0, 1) decides whether XTC applies; ``most_surprise`` in bits is Mirostat's bound, None without it.
    """
    if options.min_p > 0:
        found = found.keep(found.weights >= options.min_p * found.weights.max())
    if options.typical_p < 1:
        found = found.keep(found.weights > 0)
        found = found.keep(typical(found.weights, options.typical_p))
    if options.top_a > 0:
        found = found.keep(above_square(found.weights, options.top_a))
    if coin < options.xtc_probability:
        found = found.keep(without_top_choices(found.weights, options.xtc_threshold))
    if most_surprise is not None:
        found = found.keep(unsurprising(found.weights, most_surprise))
    return found


def nucleus(weights: Weights, top_p: float) -> Positions:
    """The fewest most likely tokens that together reach the probability ``top_p``."""
    positions = best_prefix(weights, weights, top_p * float(weights.sum()))
    positions.sort()
    return positions


def typical(weights: Weights, mass: float) -> Positions:
    """The fewest tokens, those with a surprise closest to the entropy first, that together reach ``mass``."""
    total = float(weights.sum())
    surprise = -np.log(weights / total)
    entropy = float((weights * surprise).sum()) / total
    return np.sort(best_prefix(-np.abs(surprise - entropy), weights, mass * total))


def above_square(weights: Weights, top_a: float) -> NDArray[np.bool_]:
    """Tokens of at least ``top_a`` times the square of the largest probability."""
    top = float(weights.max())
    kept: NDArray[np.bool_] = weights >= top_a * top * (top / float(weights.sum()))
    return kept


def without_top_choices(weights: Weights, threshold: float) -> NDArray[np.bool_]:
    """All but the tokens that reach ``threshold``, of which the least likely stays."""
    top = weights >= threshold * float(weights.sum())
    positions = np.flatnonzero(top)
    kept = ~top
    if len(positions):
        order = np.argsort(-weights[positions], kind="stable")
        kept[positions[order[-1]]] = True
    return kept


def unsurprising(weights: Weights, most: float) -> NDArray[np.bool_]:
    """Tokens of at most so many bits of surprise; the first of the most likely ones where there are none."""
    kept: NDArray[np.bool_] = weights >= math.exp2(-max(most, 0.0)) * float(weights.sum())
    if not kept.any():
        kept[int(weights.argmax())] = True
    return kept

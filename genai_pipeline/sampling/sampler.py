"""Choosing one token per row of logits: greedy, or temperature, top-k, top-p and min-p in that order.

The order and the formulas are those of the field's reference implementations: logits / temperature, the k most
likely tokens, the smallest set of most likely tokens whose probability reaches p (Holtzman et al. 2020), tokens
with at least min_p times the top probability (Nguyen et al. 2024), one draw from what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import GraphRunError
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.random import uniform

Logits = NDArray[np.float32]  # [rows, vocabulary]


class Draw(NamedTuple):
    """What choosing the next token of one row depends on besides its logits. A tuple: one is made per token."""

    options: GenerationOptions
    seed: int
    choice: int  # index of the sample within its request
    position: int  # tokens chosen before this one
    banned: NDArray[np.int64] | None = None  # ids that may not be chosen now


def choose_tokens(logits: Logits, draws: Sequence[Draw]) -> list[int]:
    """One token id per row; ties take the lowest id. ``logits`` may be overwritten.

    Raises GraphRunError for a row without a finite best logit: the graph gave no numbers, or every token is banned.
    """
    for row, draw in enumerate(draws):
        if draw.banned is not None:
            logits[row, draw.banned] = -np.inf
    return [_choose(row, draw) for row, draw in zip(logits, draws, strict=True)]


def _choose(row: NDArray[np.float32], draw: Draw) -> int:
    best = int(row.argmax())  # the first NaN, if there is one
    if not math.isfinite(row[best]):
        raise GraphRunError(f"there is no token to choose: the best logit is {row[best]}")
    return best if draw.options.temperature == 0 else _sample(row, draw)


def _sample(row: NDArray[np.float32], draw: Draw) -> int:
    options = draw.options
    ids, scores = _top_k(row, options.top_k)
    probabilities = _softmax(scores.astype(np.float64) / options.temperature)
    keep = _nucleus_size(probabilities, options.top_p)
    if options.min_p > 0:
        keep = min(keep, int(np.count_nonzero(probabilities >= options.min_p * probabilities[0])))
    cumulative = np.cumsum(probabilities[:keep])
    point = uniform(draw.seed, draw.choice, draw.position) * cumulative[-1]
    return int(ids[min(int(np.searchsorted(cumulative, point, side="right")), keep - 1)])


def _top_k(row: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The k best ids (all when k is 0) and their logits, best first; equal logits in id order."""
    ids = np.flatnonzero(row > -np.inf)
    if 0 < k < len(ids):
        bound = np.partition(row[ids], len(ids) - k)[len(ids) - k]
        better, equal = ids[row[ids] > bound], ids[row[ids] == bound]
        ids = np.sort(np.concatenate([better, equal[: k - len(better)]]))
    order = np.argsort(-row[ids], kind="stable")
    return ids[order], row[ids[order]]


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    exponentials = np.exp(scores - scores[0])
    total: NDArray[Any] = exponentials / exponentials.sum()
    return total


def _nucleus_size(probabilities: NDArray[np.float64], top_p: float) -> int:
    """How many of the most likely tokens reach ``top_p``; at least one."""
    if top_p >= 1:
        return len(probabilities)
    return min(int(np.searchsorted(np.cumsum(probabilities), top_p, side="left")) + 1, len(probabilities))

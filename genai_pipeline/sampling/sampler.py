"""Choosing one token per row of logits. The order of all that bears on it is in docs/sampling.md.

Rows are handled one by one, so that a row's result is bit for bit the same in any batch and order; the work on a whole
vocabulary is a few vectorised passes, and all that follows touches the candidates only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import GraphRunError, RequestError
from genai_pipeline.sampling.candidates import block_maxima
from genai_pipeline.sampling.estimates import draw_from_all, estimable
from genai_pipeline.sampling.filters import candidates, filtered, unfiltered
from genai_pipeline.sampling.logprobs import certain, drawn_logprobs, row_logprobs
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.random import XTC_LANE, uniform
from genai_pipeline.sampling.state import Chosen, SamplingState, needs_state

_BLOCK = 256  # weights that are summed at once before a draw looks inside a block

Logits = NDArray[np.float32]  # [rows, vocabulary]
Row = NDArray[np.float32]
Mask = NDArray[np.int32]  # bit i % 32 of word i // 32: whether token i may be chosen


class Draw(NamedTuple):
    """What choosing the next token of one row depends on besides its logits. A tuple: one is made per token."""

    options: GenerationOptions
    seed: int
    choice: int  # index of the sample within its request
    position: int  # tokens chosen before this one
    banned: NDArray[np.int64] | None = None  # ids that may not be chosen now
    state: SamplingState | None = None  # of the sequence, as sampling_state gave it
    mask: Mask | None = None  # of a constraint; None: none


def choose_tokens(logits: Logits, draws: Sequence[Draw]) -> list[Chosen]:
    """One token per row; ties take the lowest id. ``logits`` may be overwritten.

    Raises GraphRunError for a row without a finite best logit: the graph gave no numbers, or every token is banned;
    RequestError for a forced token that may not be chosen.
    """
    with np.errstate(over="ignore"):  # a logit that leaves float32 is infinite, and exp of that is 0
        return [_choose(row, draw) for row, draw in zip(logits, draws, strict=True)]


def _choose(row: Row, draw: Draw) -> Chosen:
    options = draw.options
    of_model = options.logprobs and options.logprobs_of == "model"
    of_processed = options.logprobs and not of_model
    raw = row.copy() if of_model else row
    if draw.position < len(options.forced_token_ids):
        chosen = _forced(draw, len(row), of_processed)
    else:
        process(row, draw)
        chosen = _greedy(row, options, of_processed) if options.greedy else _sampled(row, draw, of_processed)
    if not of_model:
        return chosen
    return chosen._replace(logprobs=row_logprobs(raw, chosen.token, options.top_logprobs))


def process(row: Row, draw: Draw) -> None:
    """Apply bias, penalties, bans and mask to one row in place: what is left is ready for argmax or temperature."""
    if draw.state is not None:
        draw.state.apply(row)
    else:
        assert not needs_state(draw.options), "sampling_state gives the state that these options need"
    if draw.banned is not None:
        row[draw.banned] = -np.inf
    if draw.mask is not None:
        _apply_mask(row, draw.mask)


def _apply_mask(row: Row, mask: Mask) -> None:
    """Ban the tokens whose bit is not set; those beyond the mask, too."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little", count=len(row))
    bounds = bits.astype(np.float32)
    bounds -= np.float32(0.5)
    bounds *= np.float32(np.inf)  # infinite where the token may be chosen, -infinite where not
    np.minimum(row, bounds, out=row)


def _greedy(row: Row, options: GenerationOptions, logprobs: bool) -> Chosen:
    best = int(row.argmax())  # the first NaN, if there is one
    _check_peak(row[best])
    return Chosen(best, row_logprobs(row, best, options.top_logprobs) if logprobs else None)


def _sampled(row: Row, draw: Draw, logprobs: bool) -> Chosen:
    options = draw.options
    maxima = block_maxima(row)
    peak = float(maxima.max())  # NaN, if there is one
    _check_peak(peak)
    number = uniform(draw.seed, draw.choice, draw.position)
    if unfiltered(options) and not logprobs and estimable(row, options.temperature):
        token = draw_from_all(row, peak, options.temperature, number)
        if token is not None:
            return Chosen(token)
    coin = uniform(draw.seed, draw.choice, draw.position, XTC_LANE) if options.xtc_probability > 0 else 1.0
    most_surprise = draw.state.most_surprise if options.mirostat and draw.state is not None else None
    found = filtered(candidates(row, peak, maxima, options), options, coin, most_surprise)
    position = draw_position(found.weights, number)
    surprise = 0.0 if most_surprise is None else -math.log2(found.weights[position] / found.weights.sum())
    drawn = drawn_logprobs(found, position, options.top_logprobs) if logprobs else None
    return Chosen(found.token(position), drawn, surprise)


def draw_position(weights: NDArray[np.float64], number: float) -> int:
    """The position at which ``number`` in [0, 1) falls into the weights laid end to end; never one of weight 0."""
    if len(weights) <= _BLOCK:
        sums = weights.cumsum()
        return int(sums.searchsorted(number * float(sums[-1]), side="right"))
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK)).cumsum()
    point = number * float(sums[-1])
    block = int(sums.searchsorted(point, side="right"))
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK]
    rest = point - float(sums[block - 1]) if block else point
    found = int(inside.cumsum().searchsorted(rest, side="right"))
    if found == len(inside):  # sums of a block differ by rounding, so that the rest can lie beyond it
        found = int(inside.nonzero()[0][-1])
    return block * _BLOCK + found


def _forced(draw: Draw, vocabulary: int, logprobs: bool) -> Chosen:
    """The token that the options force. Raises RequestError where it is banned or the constraint has another one."""
    options = draw.options
    token = options.forced_token_ids[draw.position]
    reason = ""
    if token >= vocabulary:
        reason = f"the model has {vocabulary} tokens"
    elif draw.banned is not None and token in draw.banned:
        reason = "it may not be chosen here: the package suppresses it, or it ends before min_new_tokens"
    elif draw.mask is not None and not _allows(draw.mask, token):
        reason = "the constraint does not allow it there"
    if reason:
        message = f"forced_token_ids has {token} as token {draw.position + 1} of the answer, but {reason}"
        raise RequestError(message, param="forced_token_ids")
    return Chosen(token, certain(token, options.top_logprobs) if logprobs else None)


def _allows(mask: Mask, token: int) -> bool:
    word = token // 32
    return word < len(mask) and bool(int(mask[word]) >> token % 32 & 1)


def _check_peak(peak: float) -> None:
    if not math.isfinite(peak):
        raise GraphRunError(f"there is no token to choose: the best logit is {peak}")

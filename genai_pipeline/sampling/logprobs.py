"""Log probabilities in nats, computed in float64: of rows of logits, and of what a token was drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import GraphRunError
from genai_pipeline.sampling.candidates import best_first
from genai_pipeline.sampling.filters import Candidates
from genai_pipeline.types import TokenLogprob, TokenLogprobs


def score_rows(logits: NDArray[np.float32], tokens: Sequence[int], top: int = 0) -> list[TokenLogprobs]:
    """The log probability of one token per row of [rows, vocabulary], with the ``top`` most likely ones of the row.

    Raises GraphRunError for a row whose largest logit is no finite number.
    """
    return [row_logprobs(row, token, top) for row, token in zip(logits, tokens, strict=True)]


def row_logprobs(row: NDArray[np.float32], token: int, top: int) -> TokenLogprobs:
    """The log softmax of a row at ``token`` and at its ``top`` best tokens. Raises GraphRunError."""
    peak = float(row.max())
    if not math.isfinite(peak):
        raise GraphRunError(f"there are no log probabilities: the best logit is {peak}")
    shifted = row.astype(np.float64)
    shifted -= peak
    total = peak + math.log(float(np.exp(shifted, out=shifted).sum()))
    best = best_first(row, top) if top else ()
    ranked = tuple(TokenLogprob(int(other), float(row[other]) - total) for other in best)
    return TokenLogprobs(token, float(row[token]) - total, ranked)


def drawn_logprobs(found: Candidates, position: int, top: int) -> TokenLogprobs:
    """The log probability of the candidate at ``position`` and of the ``top`` likeliest among them."""
    total = math.log(float(found.weights.sum()))
    best = [int(at) for at in best_first(found.weights, top) if found.weights[at] > 0] if top else []
    ranked = tuple(TokenLogprob(found.token(at), math.log(found.weights[at]) - total) for at in best)
    return TokenLogprobs(found.token(position), math.log(found.weights[position]) - total, ranked)


def certain(token: int, top: int) -> TokenLogprobs:
    """Log probabilities where only one token could be chosen."""
    return TokenLogprobs(token, 0.0, (TokenLogprob(token, 0.0),) if top else ())

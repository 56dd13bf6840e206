"""Beam search: which continuations of its hypotheses are kept, and when it is over. The engine runs the graph.

The rules are those of transformers (generation/utils.py, ``_beam_search`` of 5.x); docs/sampling.md has them. Log
probabilities are those of the distribution after bias, penalties and bans, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.logprobs import row_logprobs
from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens, process
from genai_pipeline.types import TokenLogprob

Offer = Sequence[TokenLogprob]  # the best tokens that may follow a beam, best first


class Beam(NamedTuple):
    """A hypothesis that goes on; ``parent`` is the rank of the one it continues, among those before."""

    tokens: tuple[int, ...]
    logprob: float  # the sum over its tokens
    parent: int = 0


class Hypothesis(NamedTuple):
    """A hypothesis that has ended, its end token included if it has one."""

    tokens: tuple[int, ...]
    score: float


class BeamSearch:
    """One search. ``beams`` go on, best first; ``finished`` have ended, best first, at most ``num_beams`` of them."""

    def __init__(self, options: GenerationOptions, max_tokens: int, ends: Collection[int]) -> None:
        self.num_beams = options.num_beams
        self._length_penalty = options.length_penalty
        self._early_stopping = options.early_stopping
        self._max_tokens = max_tokens
        self._ends = ends
        self.beams: tuple[Beam, ...] = (Beam((), 0.0),)
        self.finished: list[Hypothesis] = []

    @property
    def width(self) -> int:
        """Tokens that each beam has to offer: enough to go on with, whatever ends."""
        return self.num_beams + len(self._ends)

    @property
    def over(self) -> bool:
        """Whether no hypothesis goes on."""
        return not self.beams

    def advance(self, offers: Sequence[Offer]) -> None:
        """One more token: ``offers`` are those of ``beams``, in their order.

        Of equal sums the better beam comes first, and of one beam the better token.
        """
        found = [
            (beam.logprob + token.logprob, rank, token.token)
            for rank, (beam, offer) in enumerate(zip(self.beams, offers, strict=True))
            for token in offer
        ]
        found.sort(key=lambda candidate: -candidate[0])  # stable
        length = len(self.beams[0].tokens) + 1
        beams: list[Beam] = []
        for place, (logprob, rank, token) in enumerate(found):
            if token in self._ends or length == self._max_tokens:
                if place < self.num_beams:  # those further down are there to go on only
                    self._finish((*self.beams[rank].tokens, token), logprob)
            elif len(beams) < self.num_beams:
                beams.append(Beam((*self.beams[rank].tokens, token), logprob, rank))
        self.beams = () if self._is_enough(beams, length) else tuple(beams)

    def _finish(self, tokens: tuple[int, ...], logprob: float) -> None:
        self.finished.append(Hypothesis(tokens, self._score(logprob, len(tokens))))
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)  # stable
        del self.finished[self.num_beams :]

    def _is_enough(self, beams: Sequence[Beam], length: int) -> bool:
        """Whether the search ends with what it has: no beam promises more, or it was not to look for more."""
        if len(self.finished) < self.num_beams or not beams:
            return False
        return self._early_stopping or self._score(beams[0].logprob, length) <= self.finished[-1].score

    def _score(self, logprob: float, length: int) -> float:
        return logprob / math.pow(length, self._length_penalty)


def offer_tokens(row: NDArray[np.float32], draw: Draw, count: int) -> Offer:
    """The ``count`` best tokens after one beam, none where every token is banned. ``row`` is spent.

    Raises GraphRunError for logits that are no numbers, RequestError for a forced token that may not be chosen.
    """
    if draw.position < len(draw.options.forced_token_ids):
        (forced,) = choose_tokens(row[np.newaxis], [draw])
        return (TokenLogprob(forced.token, 0.0),)
    with np.errstate(over="ignore"):  # as in choose_tokens
        process(row, draw)
    return () if float(row.max()) == -math.inf else row_logprobs(row, 0, count).top

"""Choosing tokens of a batch: masks filled while the graph runs, one draw per row, drafts verified place by place.

A draft is kept only if it equals the target's own draw at its place, and the next place counts only while that holds:
the tokens are those of a run without drafts (docs/speculation.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.constraints.mask_worker import MaskWorker
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.errors import GenaiError
from genai_pipeline.sampling.beams import Offer, offer_tokens
from genai_pipeline.sampling.logprobs import score_rows
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import Chosen

if TYPE_CHECKING:
    from genai_pipeline.constraints.state import ConstraintState

Logits = NDArray[np.float32]
_NO_ERRORS: Mapping[int, GenaiError] = MappingProxyType({})
LEAST_FORCED = 2  # one more token in the next run costs a prefill run instead of a place among the decode rows


@dataclass(slots=True)
class Picks:
    """What a run brought one sequence: tokens in order, and the error that ends it after them, if any does."""

    tokens: list[Chosen] = field(default_factory=list)
    error: GenaiError | None = None
    offer: Offer | None = None  # of a beam, which chooses nothing


class _Place(NamedTuple):
    """Where the next token of a sequence is chosen: its row of logits, and the drafts that follow."""

    row: int
    sequence: Sequence
    drafts: tuple[int, ...]
    picks: Picks


class Chooser:
    """Chooses the tokens of one loop. ``prepare`` comes before each run, ``choose`` after one that succeeded."""

    def __init__(self, rules: LoopRules) -> None:
        self._rules = rules
        self._suppressed = np.array(rules.suppressed, np.int64) if rules.suppressed else None
        self._not_first = np.array(rules.not_first, np.int64)
        self._masks = GrowingArray(np.dtype(np.int32))
        self._worker: MaskWorker | None = None  # made when the first constrained sequence comes
        self._mask_rows: dict[int, int] = {}  # sequence -> its row of the masks that are being filled

    def prepare(self, batch: Batch) -> None:
        """Begin to fill the masks that ``batch`` needs; the graph may run meanwhile."""
        self._mask_rows = {}
        self._masks_filled()  # those of a run that failed, which are not wanted any more
        states: list[ConstraintState] = []
        for sequence, samples in zip(batch.sequences, batch.samples, strict=True):
            if samples and sequence.constraint is not None:
                self._mask_rows[sequence.id] = len(states)
                states.append(sequence.constraint)
        if states:
            self._worker = self._worker or MaskWorker()
            self._worker.start(states, self._masks.resize((len(states), self._rules.mask_words)))

    def choose(self, batch: Batch, logits: Logits) -> list[Picks]:
        """Tokens for each row of ``batch``; none for a row that does not sample. ``logits`` are spent."""
        picks = [Picks() for _ in batch.sequences]
        errors = self._masks_filled()
        for sequence, found in zip(batch.sequences, picks, strict=True):
            found.error = errors.get(self._mask_rows.get(sequence.id, -1))
        places = list(self._first_places(batch, logits, picks))
        while places:
            places = self._round(places, logits)
        return picks

    def close(self) -> None:
        """Stop the worker."""
        if self._worker is not None:
            self._worker.close()

    def _masks_filled(self) -> Mapping[int, GenaiError]:
        """Wait for the masks that are being filled; gives the errors by row."""
        if self._worker is None:
            return _NO_ERRORS
        self._worker.wait()
        return self._worker.errors

    def _first_places(self, batch: Batch, logits: Logits, picks: list[Picks]) -> Iterator[_Place]:
        """The first place of every row that samples, once its prompt's places are scored."""
        row = 0
        for i, sequence in enumerate(batch.sequences):
            reads, drafts = batch.reads[i], batch.drafts[i]
            if sequence.scores is not None and reads:
                self._score(sequence, batch.stops[i], logits[row : row + reads])
            row += reads
            if batch.samples[i] and picks[i].error is None and sequence.max_tokens:
                yield _Place(row - 1 - drafts, sequence, tuple(sequence.drafts[:drafts]), picks[i])

    def _score(self, sequence: Sequence, stop: int, logits: Logits) -> None:
        """Score the prompt's tokens that follow the places of ``logits``, the last of which is ``stop`` - 1."""
        first = stop - len(logits) + 1
        tokens = sequence.tokens[first : min(stop + 1, sequence.num_prompt)]
        assert sequence.scores is not None
        if tokens:
            del sequence.scores[first - 1 :]  # a preempted prompt is computed again
            sequence.scores += score_rows(logits[: len(tokens)], tokens, sequence.options.prompt_logprobs or 0)

    def _round(self, places: list[_Place], logits: Logits) -> list[_Place]:
        """Choose one token at each place; gives the places that follow, where a draft was right."""
        following = []
        for place in places:
            try:
                right = self._choose(place, logits)
            except GenaiError as error:
                place.picks.error = error
                continue
            if right:
                following.append(place._replace(row=place.row + 1, drafts=place.drafts[1:]))
        return following

    def _choose(self, place: _Place, logits: Logits) -> bool:
        """Choose one token; gives whether the draft for its place was right, so that the next place counts too."""
        sequence = place.sequence
        if sequence.search is not None:
            place.picks.offer = offer_tokens(logits[place.row], self._draw(place), sequence.search.width)
            return False
        (choice,) = choose_tokens(logits[place.row : place.row + 1], [self._draw(place)])
        if self._rules.ends(sequence, choice.token):
            place.picks.tokens.append(choice)
            return False
        accept(sequence, choice)
        place.picks.tokens.append(choice)
        if sequence.constraint is not None and sequence.constraint.finished:
            return False
        return bool(place.drafts) and choice.token == place.drafts[0]

    def _draw(self, place: _Place) -> Draw:
        sequence = place.sequence
        index = sequence.num_generated + len(place.picks.tokens)
        banned = sequence.not_yet if index < sequence.options.min_new_tokens else self._suppressed
        if index == 0 and len(self._not_first):
            banned = self._not_first if banned is None else np.union1d(banned, self._not_first)
        mask = None if sequence.constraint is None else self._mask(place, sequence.constraint)
        if sequence.budget is not None and sequence.budget.forced is not None:
            mask = self._only(sequence.budget.forced)
        return Draw(sequence.options, sequence.seed, sequence.choice, index, banned, sequence.sampling, mask)

    def _mask(self, place: _Place, constraint: ConstraintState) -> NDArray[np.int32]:
        """What the constraint lets come next: filled beforehand for the first place of a run."""
        row: NDArray[np.int32] = self._masks.array[self._mask_rows[place.sequence.id]]
        if place.picks.tokens:
            constraint.fill(row)
        return row

    def _only(self, token: int) -> NDArray[np.int32]:
        """A mask that lets one token come next."""
        mask = np.zeros(self._rules.mask_words, np.uint32)
        mask[token // 32] = 1 << token % 32
        return mask.view(np.int32)


def accept(sequence: Sequence, choice: Chosen) -> None:
    """Let the sampler's state and the constraint of a sequence know of its next token. Raises ConstraintError."""
    if sequence.sampling is not None:
        sequence.sampling.accept(choice)
    if sequence.constraint is not None:
        sequence.constraint.accept(choice.token)


def forced_tokens(sequence: Sequence, banned: frozenset[int]) -> list[int]:
    """Tokens that a constraint leaves no choice in, so that they need no run of their own.

    They are left to the sampler where they are too few to pay for, where their probabilities are wanted, and where
    options may forbid them; ``banned`` are those that the loop does not choose there.
    """
    options = sequence.options
    if sequence.constraint is None or options.logprobs or sequence.num_generated < len(options.forced_token_ids):
        return []
    if options.banned_token_ids or options.no_repeat_ngram_size:
        return []
    forced = sequence.constraint.forced()
    return forced if len(forced) >= LEAST_FORCED and banned.isdisjoint(forced) else []

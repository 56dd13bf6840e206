"""Drafts in one loop: asked for before a step is planned, verified by its run, and learned from."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.choosing import Picks
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.scheduler.scheduler import Scheduler
from genai_pipeline.speculative.drafter import Want
from genai_pipeline.speculative.speculation import Speculation, Verified
from genai_pipeline.speculative.stats import judged


class Drafting:
    """Hands drafts for the decoding sequences of a loop to the scheduler, and the outcome to ``speculation``."""

    def __init__(self, loop: str, speculation: Speculation) -> None:
        self._loop = loop
        self._speculation = speculation

    def propose(self, live: Mapping[int, Sequence], scheduler: Scheduler) -> None:
        """Draft for the next step; sequences of requests that want no drafts only count as rows."""
        decoding = [s for s in live.values() if s.loop == self._loop and scheduler.decodes(s.id)]
        wants = [Want(s, scheduler.room_for_drafts(s.id)) for s in decoding if _may_draft(s)]
        for id, drafts in self._speculation.propose(wants, len(decoding)).items():
            live[id].drafts = list(drafts)
            scheduler.draft(id, len(drafts))

    def ran(self, batch: Batch, picks: Many[Picks], seconds: float) -> None:
        """A decode run with or without drafts took so long."""
        rows = []
        for sequence, start, drafts, picked in zip(batch.sequences, batch.starts, batch.drafts, picks, strict=True):
            chosen = [choice.token for choice in picked.tokens]
            rows.append(Verified(sequence.id, start, *judged(sequence.drafts[:drafts], chosen)))
        self._speculation.ran(rows, seconds)

    def forget(self, sequence: Sequence) -> None:
        """A sequence has ended."""
        self._speculation.forget(sequence.id)


def _may_draft(sequence: Sequence) -> bool:
    """Whether drafts are wanted: a budget of reasoning is counted token by token, behind the choice; beams choose
    nothing."""
    return sequence.options.speculate and sequence.budget is None and sequence.search is None


def choose_as_target(logits: NDArray[np.float32], places: Many[tuple[Sequence, int]]) -> list[int]:
    """The token that each target's sampler would draw at an index of its answer, from a draft model's logits.

    What a target remembers of its tokens is as of its last one, and its constraint is left out: a draft is a guess.
    """
    draws = [
        Draw(sequence.options, sequence.seed, sequence.choice, index, None, sequence.sampling)
        for sequence, index in places
    ]
    return [choice.token for choice in choose_tokens(logits, draws)]

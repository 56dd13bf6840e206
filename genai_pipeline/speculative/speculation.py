"""Speculation in one loop: asks for drafts where they pay, and learns from the runs that verified them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from genai_pipeline.speculative.draft_length import DraftLength
from genai_pipeline.speculative.drafter import Drafter, Source, Want
from genai_pipeline.speculative.run_costs import Load


class Verified(NamedTuple):
    """One row of a decode run: its tokens before the run, and what came of its drafts (both 0 in a plain row).

    ``drafted`` counts the drafts that were looked at: where a sequence ends within them, the rest does not count.
    """

    sequence: int
    past: int
    drafted: int = 0
    accepted: int = 0


class Speculation:
    """Drafts for the sequences of one loop; belongs to the engine thread.

    ``propose`` comes before a step is planned, ``ran`` after each decode run, ``forget`` when a sequence ends, whatever
    it ended with. ``runs_alone``: a row with drafts cannot share its run with others.
    """

    def __init__(self, drafter: Drafter, *, runs_alone: bool) -> None:
        self.lengths = DraftLength(runs_alone=runs_alone, drafts_cost=not drafter.free)
        self._drafter = drafter
        self._sources: dict[int, Source] = {}  # of the latest drafts of each sequence
        self._rows = 1  # that decoded when drafts were last proposed

    def propose(self, wants: Sequence[Want], rows: int) -> dict[int, tuple[int, ...]]:
        """Drafts by sequence id; a sequence without any is left out. ``rows`` is how many decode in all."""
        self._rows = rows
        found = [(want, source) for want in wants if want.most > 0 and (source := self._drafter.source(want.target))]
        if not found:
            return {}
        load = Load(rows, max(len(want.target.tokens) for want, _ in found), len(found))
        asked = [
            (Want(want.target, count), source)
            for want, source in found
            if (count := self.lengths.choose(want.target.id, source, load, min(want.most, self._drafter.most)))
        ]
        return self._draft(asked, load) if asked else {}

    def ran(self, rows: Sequence[Verified], seconds: float) -> None:
        """A decode run of the loop took so long in its graphs."""
        load = Load(max(self._rows, len(rows)), max(row.past for row in rows) + 1)
        drafting = [row for row in rows if row.drafted]
        for row in drafting:
            source = self._sources.get(row.sequence)
            if source is not None:  # else it was forgotten before
                self.lengths.acceptance.verified(row.sequence, source, row.drafted, row.accepted)
        if drafting:
            checked = {row.sequence: row.accepted for row in drafting}
            self.lengths.verified(load, len(rows), max(row.drafted for row in drafting), checked, seconds)
        else:
            self.lengths.stepped(load._replace(rows=len(rows)), seconds)

    def forget(self, sequence: int) -> None:
        """A sequence has ended. Harmless when it is not known."""
        self._sources.pop(sequence, None)
        self._drafter.forget(sequence)
        self.lengths.forget(sequence)

    def _draft(self, asked: Sequence[tuple[Want, Source]], load: Load) -> dict[int, tuple[int, ...]]:
        proposal = self._drafter.propose([want for want, _ in asked])
        if not self._drafter.free:
            self.lengths.drafted(load, sum(map(len, proposal.drafts)), proposal.seconds, proposal.catching_up)
        drafts: dict[int, tuple[int, ...]] = {}
        for (want, source), tokens in zip(asked, proposal.drafts, strict=True):
            if tokens:
                drafts[want.target.id] = tokens
                self._sources[want.target.id] = source
        return drafts

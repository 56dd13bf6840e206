"""A decode loop at run time: its body in lanes, its state rows, and its rules for choosing and ending."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, LoadedGraph
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.carry import Carry
from genai_pipeline.engine.choosing import Chooser, Picks, forced_tokens
from genai_pipeline.engine.given_state import GivenState
from genai_pipeline.engine.intake import Intake
from genai_pipeline.engine.lane import Lane
from genai_pipeline.engine.rows import compaction, consecutive
from genai_pipeline.engine.rules import LoopRules
from genai_pipeline.engine.sequence import NO_ROW, Sequence
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.engine.written_tokens import with_token_ids
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.scheduler.plan import Run, Span
from genai_pipeline.types import FinishReason

if TYPE_CHECKING:
    from genai_pipeline.engine.drafting import Drafting

RUN_KINDS = ("prefill", "decode", "verify")  # each binds in a lane of its own


class DecodeLoop:
    """Runs batches of one loop; sequences own a state row between ``open`` and ``close``."""

    def __init__(
        self,
        stage: StagePlan,
        graphs: Mapping[str, LoadedGraph],
        pool: KvPool,
        keeper: StateKeeper,
        rules: LoopRules,
    ) -> None:
        stage = with_token_ids(stage, rules.tokenizers)
        assert stage.body is not None
        assert stage.spec.decode is not None
        self.id = stage.body.id
        self.rules = rules
        self.drafting: Drafting | None = None  # set before the engine starts, where drafts are made
        self._stage = stage
        self._pool = pool
        self._keeper = keeper
        logits_key = stage.body.reads[stage.spec.decode.logits or ""]
        carry = Carry(stage)
        self._lanes = {kind: Lane(stage.body, logits_key, graphs, pool, rules.tokenizers, carry) for kind in RUN_KINDS}
        self._ran: Lane | None = None  # the last lane that did
        self._chooser = Chooser(rules)
        self._suppressed = frozenset(rules.suppressed)
        self._not_first = frozenset(rules.suppressed + rules.not_first)
        lane = self._lanes["decode"]
        self._tells_step, self._tells_first = "step" in lane.loop_reads, lane.tells_first
        self._given = GivenState(stage.body, keeper.components)
        self._rows: dict[int, Sequence] = {}
        self.reads_any_row = self._lanes["decode"].reads_any_row
        self.intake = Intake(stage, graphs, rules, self._extra_pages, reads_any_row=self.reads_any_row)

    def open(self, sequence: Sequence) -> int:
        """Give the sequence a row, and restore what state can be; returns the tokens that are computed now."""
        row = self._pool.open()
        assert row is not None, "the scheduler admits no more sequences than there are rows"
        sequence.row = row
        self._rows[row] = sequence
        self._given.put(self._pool, row, sequence.values)
        sequence.num_computed = self._keeper.enter(sequence)
        return sequence.num_computed

    def preempt(self, sequence: Sequence, *, swap: bool) -> bool:
        """Take the row of a running sequence; gives whether its state was kept outside."""
        kept = swap and self._keeper.swap_out(sequence)
        self._release(sequence)
        sequence.num_computed = 0
        return kept

    def close(self, sequence: Sequence) -> None:
        """End a sequence, whether it ran, waited or never started; its state may go to the prefix cache."""
        if self.drafting is not None:
            self.drafting.forget(sequence)
        if sequence.row == NO_ROW:
            self._keeper.forget(sequence)
        else:
            self._keeper.retain(sequence)
            self._release(sequence)

    def batches(self, run: Run, sequences: Iterable[Sequence | None]) -> list[tuple[str, Batch]]:
        """(kind, batch) of a planned run, in row order: rows that may share one. Who has ended meanwhile is left out.

        Decode rows with drafts are verified; where several tokens on a past run in single rows only, they run alone.
        """
        members = [
            (span, sequence) for span, sequence in zip(run.spans, sequences, strict=True) if sequence is not None
        ]
        if run.kind == "decode" and self.rules.batches_rows:
            self._compact([sequence for _, sequence in members])
        if len(members) == 1:
            span, sequence = members[0]
            return [("verify" if span.num_drafts else run.kind, Batch.of([span], (sequence,)))]
        return [
            (
                "verify" if any(span.num_drafts for span, _ in group) else run.kind,
                Batch.of([span for span, _ in group], tuple([sequence for _, sequence in group])),
            )
            for group in self._groups(sorted(members, key=_row_of))
        ]

    def reserve(self, batch: Batch) -> None:
        """Take the pages for the tokens of ``batch``; the scheduler has counted them."""
        for row, stop in zip(batch.rows, batch.stops, strict=True):
            reserved = self._pool.reserve(row, stop)
            assert reserved, "the scheduler counts pages as the pool does"

    def run(self, kind: str, batch: Batch) -> NDArray[np.float32]:
        """Logits of the tokens that are read; masks are filled meanwhile. Raises GraphRunError."""
        self._chooser.prepare(batch)
        self._ran = self._lanes[kind]
        return self._ran.run(batch)

    def bindings(self, kind: str) -> tuple[Binding, ...]:
        """What a run of a kind runs."""
        return self._lanes[kind].bindings

    def choose(self, batch: Batch, logits: NDArray[np.float32]) -> list[Picks]:
        """The tokens of each row that samples, or its error."""
        return self._chooser.choose(batch, logits)

    def commit(self, batch: Batch, picks: Iterable[Picks] = ()) -> None:
        """Make the state of the batch's tokens count, less that of drafts that were wrong."""
        stops = _right(batch, picks) if any(batch.drafts) else batch.stops
        self._pool.commit(batch.rows, stops)
        assert self._ran is not None
        for sequence, stop, carried in zip(batch.sequences, stops, self._ran.carried, strict=True):
            sequence.num_computed, sequence.carried = stop, carried
            if self.rules.snapshots and stop % PAGE_TOKENS == 0:
                self._pool.snapshot(sequence.row)
        for row, drafts in zip(batch.rows, batch.drafts, strict=True):
            if drafts:
                self._pool.give_back_scratch(row)

    def graft(self, source: Sequence, target: Sequence, start: int) -> None:
        """Make the state of one running sequence that of another; that of the first ``start`` tokens is the same."""
        length = source.num_computed
        if start < length:
            reserved = self._pool.reserve(target.row, length)
            assert reserved, "both have as many tokens"
            self._pool.graft(source.row, target.row, start, length)
        target.carried = source.carried
        target.num_computed = length

    def forced(self, sequence: Sequence) -> list[int]:
        """Tokens that must come next whatever the model says, and so need no run of their own."""
        return forced_tokens(sequence, self._suppressed if sequence.num_generated else self._not_first)

    def ending(self, sequence: Sequence, token: int, *, last: bool) -> FinishReason | None:
        """Why ``sequence`` ends with a token that has just joined it, if it does; its text has been pushed.

        ``last``: no token that was chosen in the same step follows it, so that the constraint stands behind it.
        """
        finished = last and sequence.constraint is not None and sequence.constraint.finished
        if finished or sequence.text.over or self.rules.ends(sequence, token):
            return "stop"
        return "length" if sequence.num_generated >= sequence.max_tokens else None

    def stop(self) -> None:
        """End the thread that fills masks; nothing is run any more."""
        self._chooser.close()

    def trim(self) -> None:
        """Give back the memory that ended rows keep warm."""
        self._pool.trim()
        for lane in self._lanes.values():
            lane.forget()

    def _extra_pages(self, values: Mapping[str, Any]) -> int:
        """Pages that stand for the state which a sequence with these values is given."""
        page = self._pool.page_bytes
        return -(-self._given.nbytes(values) // page) if page else 0

    def _release(self, sequence: Sequence) -> None:
        del self._rows[sequence.row]
        self._pool.release(sequence.row)
        sequence.row = NO_ROW

    def _compact(self, decoding: list[Sequence]) -> None:
        """Move rows so that the decoding ones are the first, in one range."""
        for source, target in compaction({sequence.row for sequence in decoding}, self._rows):
            self._pool.move(source, target)
            moved = self._rows[target] = self._rows.pop(source)
            moved.row = target

    def _groups(self, members: list[tuple[Span, Sequence]]) -> Iterator[list[tuple[Span, Sequence]]]:
        """Members, sorted by row, cut into those that may share a run."""
        by_key: dict[object, list[tuple[Span, Sequence]]] = {}
        widest = max(span.num_tokens for span, _ in members)
        for span, sequence in members:
            by_key.setdefault(self._group_key(span, sequence, widest), []).append((span, sequence))
        for group in by_key.values():
            if not self.rules.batches_rows:
                yield group
                continue
            by_row = {sequence.row: (span, sequence) for span, sequence in group}
            for rows in consecutive(by_row):
                yield [by_row[row] for row in rows]

    def _group_key(self, span: Span, sequence: Sequence, widest: int) -> object:
        """Rows with different keys never share a run; some run has ``widest`` tokens per row."""
        equal = not (self._pool.ragged and self._pool.uneven)
        step = sequence.num_decoded(span.start) if self._tells_step else None
        first = span.start == 0 if self._tells_first else None  # a run has one ``loop.first``, and one graph of a pair
        no_room = self.rules.batches_rows and span.start + widest > self._pool.capacity  # for the padding in its buffer
        alone = sequence.id if no_room or (span.num_drafts and self.rules.drafts_alone) else None
        state = self._pool.batch_key(sequence.row)
        return state, sequence.outer.batch_key, span.num_tokens if equal else None, step, first, alone


def _row_of(member: tuple[Span, Sequence]) -> int:
    return member[1].row


def _right(batch: Batch, picks: Iterable[Picks]) -> tuple[int, ...]:
    """How far each row goes without the drafts that were wrong."""
    return tuple(
        [
            stop - drafts + max(0, len(picked.tokens) - 1)
            for stop, drafts, picked in zip(batch.stops, batch.drafts, picks, strict=True)
        ]
    )

"""A draft package at work: its own decode loop, run on the engine thread, with a row for each sequence it drafts for.

A row follows its target: tokens that were chosen meanwhile are run, and what was drafted wrongly is taken back. Then k
tokens are drafted one step at a time, over all rows that may share a run. Each is chosen as the target would choose
the token at that index (``Choose``), which makes the two agree as often as they can. Nothing here changes an
answer: a row that is lost, or a run that fails, means no drafts for that sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Many
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.config import LoadOptions
from genai_pipeline.engine.decode_loop import DecodeLoop
from genai_pipeline.engine.memory import StateMemory
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.engine.state_part import make_state_part
from genai_pipeline.engine.text_output import TextOutput
from genai_pipeline.errors import GraphRunError
from genai_pipeline.graph.plan import ExecutionPlan, StagePlan
from genai_pipeline.kv.geometry import pages_for
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.scheduler.plan import Run, Span
from genai_pipeline.speculative.drafter import Drafter, Proposal, Source, Target, Want
from genai_pipeline.speculative.options import DRAFT_TOKENS

Logits = NDArray[np.float32]  # [rows, vocabulary of the target]
# One token per row of logits, as the target's sampler would draw it for the token at that index of that answer.
Choose = Callable[[Logits, Many[tuple[Sequence, int]]], list[int]]
Clock = Callable[[], float]

SOURCE = Source("draft", 0.6)
LAG = DRAFT_TOKENS + 1  # tokens that a row may be behind and still draft at once: a whole draft and one more


@dataclass(frozen=True, slots=True)
class DraftPackage:
    """A package that can draft, as it was checked (``speculative.compatible``): its plan and the loop in it."""

    plan: ExecutionPlan
    loop: StagePlan
    tokenizers: Mapping[str, Tokenizer]
    tokens: int = DRAFT_TOKENS  # most of them at once


@dataclass(slots=True)
class _Row:
    """How far the draft model has followed one target; ``shadow`` has the target's tokens and then drafts."""

    target: Sequence
    shadow: Sequence
    agreed: int = 0  # tokens that are the target's
    caught_up: bool = False  # once: the first run over the prompt is over
    wanted: int = 0
    drafts: list[int] = field(default_factory=list)

    @property
    def behind(self) -> int:
        """Tokens that have not been run."""
        return len(self.shadow.tokens) - self.shadow.num_computed


class DraftModel(Drafter):
    """Drafts with the loop of a draft package; ``loop`` and ``pool`` are its own, ``width`` the target's vocabulary."""

    def __init__(
        self,
        loop: DecodeLoop,
        pool: KvPool,
        choose: Choose,
        *,
        width: int | None,
        most: int = DRAFT_TOKENS,
        chunk: int = 512,
        clock: Clock = time.perf_counter,
    ) -> None:
        assert 1 <= most < LAG
        self._loop = loop
        self._pool = pool
        self._choose = choose
        self._width = width
        self._most = most
        self._chunk = chunk  # tokens caught up on in one call
        self._clock = clock
        self._rows: dict[int, _Row] = {}  # the one used longest ago first
        self._failed: set[int] = set()

    @property
    def most(self) -> int:
        """See Drafter.most."""
        return self._most

    @property
    def free(self) -> bool:
        """Drafting takes runs of a graph."""
        return False

    @property
    def num_rows(self) -> int:
        """Sequences that it keeps up with."""
        return len(self._rows)

    def source(self, target: Target) -> Source | None:
        """See Drafter.source."""
        return None if target.id in self._failed or len(target.tokens) > self._pool.capacity else SOURCE

    def propose(self, wants: Many[Want]) -> Proposal:
        """See Drafter.propose. Sequences that are far behind only catch up, a chunk of tokens per call in all."""
        keep = {want.target.id for want in wants}
        rows = [row for want in wants if (row := self._follow(want, keep)) is not None]
        catching_up = self._catch_up(rows)
        ready = [row for row in rows if row.behind <= LAG and row.target.id in self._rows]
        started = self._clock()
        self._draft(ready)
        seconds = self._clock() - started
        drafts = {row.target.id: tuple(row.drafts) for row in ready if row.target.id in self._rows}
        return Proposal(tuple([drafts.get(want.target.id, ()) for want in wants]), seconds, catching_up)

    def forget(self, sequence: int) -> None:
        """See Drafter.forget. The state of its prompt may stay in the cache."""
        self._failed.discard(sequence)
        row = self._rows.pop(sequence, None)
        if row is not None:
            self._loop.close(row.shadow)

    def trim(self) -> None:
        """Give back the memory that ended rows keep warm."""
        self._loop.trim()

    def _follow(self, want: Want, keep: set[int]) -> _Row | None:
        """The row of a target, with all its tokens and pages for the drafts; None when there is no room for it."""
        target = want.target
        assert isinstance(target, Sequence)
        wanted = min(want.most, self._most, self._pool.capacity - len(target.tokens) + 1)
        length = len(target.tokens) + wanted - 1  # the last draft is not run
        row = self._rows.pop(target.id, None) or self._open(target, length, keep)
        if row is None:
            return None
        self._rows[target.id] = row  # it is now the one used last
        self._agree(row)
        row.wanted, row.drafts = wanted, []
        while not self._pool.reserve(row.shadow.row, length):
            if not self._make_room(keep):
                return None
        return row

    def _open(self, target: Sequence, length: int, keep: set[int]) -> _Row | None:
        """A new row, with what the cache has of the target's prompt."""
        spare = int(self._loop.rules.batches_rows)  # rows change places
        while self._pool.free_rows <= spare or self._pool.free_pages < pages_for(length):
            if not self._make_room(keep):
                return None
        shadow = Sequence(
            target.id,
            target.request,
            self._loop.id,
            tuple(target.tokens),
            max_tokens=target.max_tokens,
            seed=target.seed,
            choice=target.choice,
            text=TextOutput(None, ()),
            salt=target.salt,
        )
        shadow.scores = None  # what a request wants of the logits of its prompt are those of the target
        self._loop.open(shadow)
        return _Row(target, shadow, agreed=len(shadow.tokens))

    def _make_room(self, keep: set[int]) -> bool:
        """End the row used longest ago that is not in ``keep``."""
        last = next((id for id in self._rows if id not in keep), None)
        if last is None:
            return False
        self.forget(last)
        return True

    def _agree(self, row: _Row) -> None:
        """Take over the target's tokens, and take back state of drafts that it did not choose."""
        tokens, shadow = row.target.tokens, row.shadow
        same, known = row.agreed, min(len(tokens), len(shadow.tokens))
        while same < known and tokens[same] == shadow.tokens[same]:
            same += 1
        shadow.tokens[same:] = tokens[same:]
        row.agreed = len(tokens)
        length = min(same, len(tokens) - 1)  # the last token runs again for its logits
        if length < shadow.num_computed:
            boundaries = self._pool.boundaries(shadow.row)
            if boundaries is not None:
                length = max(boundary for boundary in boundaries if boundary <= length)
            self._pool.truncate(shadow.row, length)
            shadow.num_computed = length

    def _catch_up(self, rows: Iterable[_Row]) -> float:
        """Run all but the last token of rows that are far behind; gives the seconds of those that drafted before."""
        seconds, left = 0.0, self._chunk
        for row in rows:
            started = self._clock()
            while row.behind > LAG and left > 0 and row.target.id in self._rows:
                start = row.shadow.num_computed
                stop = min(start + left, len(row.shadow.tokens) - 1)
                left -= stop - start
                self._run("prefill", [(row, stop)], samples=False)
            if row.caught_up:
                seconds += self._clock() - started
        return seconds

    def _draft(self, rows: list[_Row]) -> None:
        """Draft what each row wants, one token per step."""
        alone = [row for row in rows if row.behind > 1]
        for row in alone:
            self._run("prefill", [(row, len(row.shadow.tokens))], samples=True)
        self._step([row for row in rows if row.behind == 1 and not row.drafts])
        for row in rows:
            row.caught_up = True
            if row.target.id in self._rows and self._pool.boundaries(row.shadow.row) is not None:
                self._pool.snapshot(row.shadow.row)  # what is drafted from here on can be taken back
        while going := [r for r in rows if r.target.id in self._rows and 0 < len(r.drafts) < r.wanted]:
            self._step(going)

    def _step(self, rows: list[_Row]) -> None:
        if rows:
            self._run("decode", [(row, len(row.shadow.tokens)) for row in rows], samples=True)

    def _run(self, kind: str, members: list[tuple[_Row, int]], *, samples: bool) -> None:
        """Run rows up to token ``stop`` each, in batches of those that may share a run, and choose where it samples."""
        by_id = {row.target.id: row for row, _ in members}
        spans = tuple([Span(row.target.id, row.shadow.num_computed, stop, samples) for row, stop in members])
        run = Run("decode" if kind == "decode" else "prefill", self._loop.id, spans)
        for _, batch in self._loop.batches(run, [row.shadow for row, _ in members]):
            part = [by_id[sequence.id] for sequence in batch.sequences]
            try:
                logits = self._loop.run(kind, batch)
                self._loop.commit(batch)
                if samples:
                    self._take(part, _fit(logits, self._width))
            except GraphRunError as error:
                for row in part:
                    self._give_up(row, error)

    def _take(self, rows: list[_Row], logits: Logits) -> None:
        """Choose the next draft of each row."""
        places = [(row.target, row.target.num_generated + len(row.drafts)) for row in rows]
        for row, token in zip(rows, self._choose(logits, places), strict=True):
            row.drafts.append(token)
            row.shadow.tokens.append(token)

    def _give_up(self, row: _Row, error: GraphRunError) -> None:
        """Draft no more for a sequence; its request is told."""
        self.forget(row.target.id)
        self._failed.add(row.target.id)
        row.target.request.notes.append(f"drafting stopped: {error.message}")


def open_draft_model(
    package: DraftPackage,
    graphs: Mapping[str, LoadedGraph],
    options: LoadOptions,
    memory: StateMemory,
    choose: Choose,
    *,
    context: int,
    width: int | None,
    resources: ExitStack,
) -> DraftModel:
    """A draft package with its loaded graphs, ready to draft; ``resources`` frees its state.

    ``memory`` is its share of the pipeline's claim, ``context`` and ``width`` are those of the target. Raises
    CapacityError or PackageError.
    """
    own = replace(memory, disk=0)
    part = make_state_part(package.plan, package.loop, graphs, package.tokenizers, options, context, own)
    resources.callback(part.close)
    loop = DecodeLoop(package.loop, graphs, part.pool, part.keeper, part.rules)
    return DraftModel(
        loop, part.pool, choose, width=width, most=min(package.tokens, DRAFT_TOKENS), chunk=options.prefill_chunk
    )


def _fit(logits: Logits, width: int | None) -> Logits:
    """Logits over the target's vocabulary: graphs pad theirs differently beyond the tokenizer's last id."""
    if width is None or logits.shape[1] == width:
        return logits
    if logits.shape[1] > width:
        return np.ascontiguousarray(logits[:, :width])
    padded = np.full((len(logits), width), -np.inf, np.float32)
    padded[:, : logits.shape[1]] = logits
    return padded

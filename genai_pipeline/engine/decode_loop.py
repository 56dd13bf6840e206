"""A decode loop at run time: its body in two lanes, its state rows, and its rules for ending."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.admission import Bounds, Grant, grant
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.lane import Lane
from genai_pipeline.engine.loop_values import PER_RUN
from genai_pipeline.engine.outer_values import OuterValues
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.rows import compaction, consecutive
from genai_pipeline.engine.sequence import NO_ROW, Sequence
from genai_pipeline.engine.state_keeper import StateKeeper
from genai_pipeline.engine.text_output import PieceDecoder, TextOutput
from genai_pipeline.errors import RequestError
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.kv.geometry import PAGE_TOKENS
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.metadata.expressions import evaluate, names
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.sampling.state import sampling_state
from genai_pipeline.scheduler.plan import Run, Span
from genai_pipeline.types import FinishReason

_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class LoopRules:
    """What bounds and ends the sequences of a loop."""

    bounds: Bounds
    end_ids: frozenset[int]  # union of every declaration
    suppressed: tuple[int, ...]  # never chosen
    streams: bool  # whether its tokens or text are a declared output
    decoder: Callable[[], PieceDecoder] | None  # makes a detokeniser; None for loops without text
    batches_rows: bool  # whether a batch is a range of rows, as where state lies in arenas
    snapshots: bool  # whether state can be resumed only where a snapshot was taken, as recurrent state


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
        assert stage.body is not None
        assert stage.spec.decode is not None
        self.id = stage.id
        self.rules = rules
        self._stage = stage
        self._pool = pool
        self._keeper = keeper
        logits_key = stage.body.reads[stage.spec.decode.logits or ""]
        self._lanes = {kind: Lane(stage.body, logits_key, graphs, pool) for kind in ("prefill", "decode")}
        self._suppressed = np.array(rules.suppressed, np.int64) if rules.suppressed else None
        self._per_run = bool(PER_RUN & self._lanes["decode"].loop_reads)
        self._rows: dict[int, Sequence] = {}
        self._outer = OuterValues(stage.body, graphs)
        prompt = stage.spec.decode.prompt
        self._prompt_keys = {stage.reads[name] for name in names(prompt.expr)} if prompt is not None else set()

    def admit(self, state: RequestState) -> None:
        """Grant a request its tokens, if the prompt is known by now.

        Raises PromptTooLongError, CapacityError or RequestError.
        """
        if state.request.options.stop and self.rules.decoder is None:
            raise RequestError(f"'{self.id}' gives no text that could be searched for stop strings", param="stop")
        if self._prompt_keys <= state.values.keys():
            granted = state.grants[self.id] = self._grant(len(self._prompt(state)), state.request.options)
            if granted.note:
                state.notes.append(granted.note)

    def new_sequences(self, state: RequestState) -> list[Sequence]:
        """A sequence for every choice of a request, further ones to be forked from the first.

        Raises PromptTooLongError, CapacityError or RequestError.
        """
        prompt, options = self._prompt(state), state.request.options
        if self.id not in state.grants:
            self.admit(state)
        granted = state.grants[self.id]
        sequences: list[Sequence] = []
        outer = self._outer.of(state.values)
        not_yet = self._not_yet(options)
        for choice in range(options.n):
            text = TextOutput(self.rules.decoder() if self.rules.decoder else None, options.stop)
            sequences.append(
                Sequence(
                    next(_ids),
                    state,
                    self.id,
                    prompt,
                    max_tokens=granted.max_new_tokens,
                    seed=state.request.seed,
                    choice=choice,
                    text=text,
                    source=sequences[0] if sequences else None,
                    salt=state.request.salt,
                    outer=outer,
                    not_yet=not_yet,
                    sampling=sampling_state(options, prompt),
                )
            )
        return sequences

    def open(self, sequence: Sequence) -> int:
        """Give the sequence a row, and restore what state can be; returns the tokens that are computed now."""
        row = self._pool.open()
        assert row is not None, "the scheduler admits no more sequences than there are rows"
        sequence.row = row
        self._rows[row] = sequence
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
        if sequence.row == NO_ROW:
            self._keeper.forget(sequence)
        else:
            self._keeper.retain(sequence)
            self._release(sequence)

    def batches(self, run: Run, sequences: Iterable[Sequence | None]) -> list[Batch]:
        """The batches of a planned run, in row order: rows that may share one. Who has ended meanwhile is left out."""
        members = [
            (span, sequence) for span, sequence in zip(run.spans, sequences, strict=True) if sequence is not None
        ]
        if run.kind == "decode" and self.rules.batches_rows:
            self._compact([sequence for _, sequence in members])
        if len(members) == 1:
            span, sequence = members[0]
            return [Batch.of([span], (sequence,))]
        return [
            Batch.of([span for span, _ in group], tuple([sequence for _, sequence in group]))
            for group in self._groups(sorted(members, key=_row_of))
        ]

    def reserve(self, batch: Batch) -> None:
        """Take the pages for the tokens of ``batch``; the scheduler has counted them."""
        for row, stop in zip(batch.rows, batch.stops, strict=True):
            reserved = self._pool.reserve(row, stop)
            assert reserved, "the scheduler counts pages as the pool does"

    def run(self, kind: str, batch: Batch) -> NDArray[np.float32]:
        """Logits of the rows that sample. Raises GraphRunError; nothing is committed."""
        return self._lanes[kind].run(batch)

    def choose(self, batch: Batch, logits: NDArray[np.float32]) -> list[int]:
        """One token for each row that samples, in batch order."""
        sampling = [s for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        if not sampling:
            return []
        chosen = choose_tokens(logits, [self._draw(sequence) for sequence in sampling])
        for sequence, choice in zip(sampling, chosen, strict=True):
            if sequence.sampling is not None:
                sequence.sampling.accept(choice)
        return [choice.token for choice in chosen]

    def commit(self, batch: Batch) -> None:
        """Make the state of the batch's tokens count."""
        self._pool.commit(batch.rows, batch.stops)
        for sequence, stop in zip(batch.sequences, batch.stops, strict=True):
            sequence.num_computed = stop
            if self.rules.snapshots and stop % PAGE_TOKENS == 0:
                self._pool.snapshot(sequence.row)

    def ending(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Why ``sequence`` ends with the token just chosen, if it does; its text has been pushed."""
        if self.is_end(sequence, token) or sequence.text.stopped:
            return "stop"
        return "length" if sequence.num_generated >= sequence.max_tokens else None

    def is_end(self, sequence: Sequence, token: int) -> bool:
        """Whether ``token`` is an end token for this request."""
        options = sequence.request.request.options
        return token in options.stop_token_ids or (token in self.rules.end_ids and not options.ignore_eos)

    def trim(self) -> None:
        """Give back the memory that ended rows keep warm."""
        self._pool.trim()

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
        for span, sequence in members:
            by_key.setdefault(self._group_key(span, sequence), []).append((span, sequence))
        for group in by_key.values():
            if not self.rules.batches_rows:
                yield group
                continue
            by_row = {sequence.row: (span, sequence) for span, sequence in group}
            for rows in consecutive(by_row):
                yield [by_row[row] for row in rows]

    def _group_key(self, span: Span, sequence: Sequence) -> object:
        """Rows with different keys never share a run."""
        equal = not (self._pool.ragged and self._pool.uneven)
        counters = (sequence.num_decoded(span.start), span.start == 0) if self._per_run else None
        state = self._pool.batch_key(sequence.row)
        return state, sequence.outer.batch_key, span.num_tokens if equal else None, counters

    def _draw(self, sequence: Sequence) -> Draw:
        options, index = sequence.request.request.options, sequence.num_generated
        banned = sequence.not_yet if index < options.min_new_tokens else self._suppressed
        return Draw(options, sequence.seed, sequence.choice, index, banned, sequence.sampling)

    def _grant(self, num_prompt: int, options: GenerationOptions) -> Grant:
        """The token limit; a package's own default caps a request and is never a reason to refuse it."""
        bounds = self.rules.bounds
        if options.max_new_tokens is not None and options.sources.get("max_new_tokens") == "package":
            most = min(options.max_new_tokens, bounds.max_new_tokens or options.max_new_tokens)
            return grant(num_prompt, None, replace(bounds, max_new_tokens=most))
        return grant(num_prompt, options.max_new_tokens, bounds)

    def _not_yet(self, options: GenerationOptions) -> NDArray[np.int64] | None:
        """Tokens that may not be chosen before the request's minimum length: all that would end it, too."""
        if not options.min_new_tokens:
            return None
        ends = set(options.stop_token_ids) | (set() if options.ignore_eos else self.rules.end_ids)
        return np.array(sorted({*self.rules.suppressed, *ends}), np.int64)

    def _prompt(self, state: RequestState) -> tuple[int, ...]:
        decode = self._stage.spec.decode
        assert decode is not None
        assert decode.prompt is not None
        tokens = evaluate(decode.prompt.expr, lambda name: state.values[self._stage.reads[name]])
        prompt = tuple(int(token) for token in tokens)
        if not prompt:
            raise RequestError("the prompt has no tokens", param="prompt", hint="give at least one character or token")
        return prompt


def _row_of(member: tuple[Span, Sequence]) -> int:
    return member[1].row

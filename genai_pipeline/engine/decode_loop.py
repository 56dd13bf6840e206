"""A decode loop at run time: its body in two lanes, its state rows, and its rules for ending."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import LoadedGraph
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.lane import Lane
from genai_pipeline.engine.request import RequestState
from genai_pipeline.engine.sequence import NO_ROW, Sequence
from genai_pipeline.engine.text_output import PieceDecoder, TextOutput
from genai_pipeline.errors import PromptTooLongError, RequestError
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.sampling.params import GenerationOptions
from genai_pipeline.sampling.sampler import Draw, choose_tokens
from genai_pipeline.types import FinishReason

_ids = itertools.count()


@dataclass(frozen=True, slots=True)
class LoopRules:
    """What bounds and ends the sequences of a loop."""

    context_length: int
    max_new_tokens: int | None  # the package's own limit
    end_ids: frozenset[int]  # union of every declaration
    suppressed: tuple[int, ...]  # never chosen
    streams: bool  # whether its tokens or text are a declared output
    decoder: Callable[[], PieceDecoder] | None  # makes a detokeniser; None for loops without text


class DecodeLoop:
    """Runs batches of one loop; sequences own a state row between ``open`` and ``close``."""

    def __init__(self, stage: StagePlan, graphs: Mapping[str, LoadedGraph], pool: KvPool, rules: LoopRules) -> None:
        assert stage.body is not None
        assert stage.spec.decode is not None
        self.id = stage.id
        self.rules = rules
        self._stage = stage
        self._pool = pool
        logits_key = stage.body.reads[stage.spec.decode.logits or ""]
        self._lanes = {kind: Lane(stage.body, logits_key, graphs, pool) for kind in ("prefill", "decode")}
        self._suppressed = np.array(rules.suppressed, np.int64) if rules.suppressed else None
        self._not_yet = np.array(sorted({*rules.suppressed, *rules.end_ids}), np.int64)

    def new_sequence(self, state: RequestState, choice: int) -> Sequence:
        """A sequence for the next choice of a request. Raises PromptTooLongError or RequestError."""
        prompt, options = self._prompt(state), state.request.options
        text = TextOutput(self.rules.decoder() if self.rules.decoder else None, options.stop)
        limit = self._token_limit(len(prompt), options, state)
        return Sequence(
            next(_ids), state, self.id, prompt, max_tokens=limit, seed=state.request.seed, choice=choice, text=text
        )

    def open(self, sequence: Sequence) -> None:
        """Give the sequence a row."""
        row = self._pool.open()
        assert row is not None, "the scheduler admits no more sequences than there are rows"
        sequence.row = row

    def close(self, sequence: Sequence) -> None:
        """Take the row back, whether the sequence ended or never started."""
        if sequence.row != NO_ROW:
            self._pool.release(sequence.row)
            sequence.row = NO_ROW

    def reserve(self, batch: Batch) -> bool:
        """Whether there is room for the tokens of ``batch``; takes it."""
        return all(self._pool.reserve(row, stop) for row, stop in zip(batch.rows, batch.stops, strict=True))

    def run(self, kind: str, batch: Batch) -> NDArray[np.float32]:
        """Logits of the rows that sample. Raises GraphRunError; nothing is committed."""
        return self._lanes[kind].run(batch)

    def choose(self, batch: Batch, logits: NDArray[np.float32]) -> list[int]:
        """One token for each row that samples, in batch order."""
        draws = [self._draw(s) for s, samples in zip(batch.sequences, batch.samples, strict=True) if samples]
        return choose_tokens(logits, draws) if draws else []

    def commit(self, batch: Batch) -> None:
        """Make the state of the batch's tokens count."""
        self._pool.commit(batch.rows, batch.stops)
        for sequence, stop in zip(batch.sequences, batch.stops, strict=True):
            sequence.num_computed = stop

    def ending(self, sequence: Sequence, token: int) -> FinishReason | None:
        """Why ``sequence`` ends with the token just chosen, if it does; its text has been pushed."""
        if self.is_end(sequence, token) or sequence.text.stopped:
            return "stop"
        return "length" if sequence.num_generated >= sequence.max_tokens else None

    def is_end(self, sequence: Sequence, token: int) -> bool:
        """Whether ``token`` is an end token for this request."""
        options = sequence.request.request.options
        return token in options.stop_token_ids or (token in self.rules.end_ids and not options.ignore_eos)

    def _draw(self, sequence: Sequence) -> Draw:
        options, index = sequence.request.request.options, sequence.num_generated
        banned = self._not_yet if index < options.min_new_tokens else self._suppressed
        return Draw(options, sequence.seed, sequence.choice, index, banned)

    def _prompt(self, state: RequestState) -> tuple[int, ...]:
        decode = self._stage.spec.decode
        assert decode is not None
        assert decode.prompt is not None
        tokens = evaluate(decode.prompt.expr, lambda name: state.values[self._stage.reads[name]])
        prompt = tuple(int(token) for token in tokens)
        if not prompt:
            raise RequestError("the prompt has no tokens", param="prompt", hint="give at least one character or token")
        return prompt

    def _token_limit(self, num_prompt: int, options: GenerationOptions, state: RequestState) -> int:
        context, asked = self.rules.context_length, options.max_new_tokens
        if num_prompt >= context:
            raise PromptTooLongError(
                f"the prompt has {num_prompt} tokens; the context holds {context}, the answer included",
                param="prompt",
                hint=f"shorten the prompt by at least {num_prompt - context + 1} tokens",
            )
        package = self.rules.max_new_tokens
        if asked is None:
            return min(context - num_prompt, package or context)
        if package is not None and asked > package:
            raise RequestError(
                f"max_new_tokens is {asked}; this package allows at most {package}", param="max_new_tokens"
            )
        if num_prompt + asked > context:
            raise PromptTooLongError(
                f"{num_prompt} prompt tokens and max_new_tokens {asked} make {num_prompt + asked}; "
                f"the context holds {context}",
                param="max_new_tokens",
                hint=f"ask for at most {context - num_prompt} tokens, or leave max_new_tokens out",
            )
        return asked

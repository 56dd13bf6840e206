"""What sampling remembers of one sequence: the processors its options ask for, and Mirostat's target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from genai_pipeline.sampling.options import GenerationOptions
from genai_pipeline.sampling.penalties import (
    BannedTokens,
    LogitBias,
    Logits,
    OutputPenalty,
    Processor,
    RepetitionPenalty,
)
from genai_pipeline.sampling.repeats import Dry, NoRepeatNgram
from genai_pipeline.sampling.time_marks import TimeMarks, TimeRule
from genai_pipeline.types import TokenLogprobs


class Chosen(NamedTuple):
    """A token that was chosen. A tuple: one is made per token."""

    token: int
    logprobs: TokenLogprobs | None = None
    surprise: float = 0.0  # with Mirostat, bits: -log2 of its probability among the tokens it was drawn from


class SamplingState:
    """Follows one sequence; ``accept`` is called once for each token that joins it, in order."""

    __slots__ = ("_eta", "_processors", "_tau", "most_surprise", "times")

    def __init__(self, options: GenerationOptions, prompt: Sequence[int], times: TimeRule | None = None) -> None:
        self._processors = tuple(_processors(options, prompt, times))
        self.times = times  # where the package's tokens mark times
        self._tau, self._eta = options.mirostat_tau, options.mirostat_eta
        self.most_surprise = 2 * options.mirostat_tau  # bits; Mirostat's mu

    def accept(self, chosen: Chosen) -> None:
        """A chosen token joins the sequence."""
        for processor in self._processors:
            processor.accept(chosen.token)
        self.most_surprise -= self._eta * (chosen.surprise - self._tau)

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place, in the documented order."""
        for processor in self._processors:
            processor.apply(row)


def needs_state(options: GenerationOptions) -> bool:
    """Whether choosing a token depends on more than options, position and logits."""
    return bool(
        options.repetition_penalty != 1
        or options.frequency_penalty
        or options.presence_penalty
        or options.dry_multiplier
        or options.no_repeat_ngram_size
        or options.mirostat
        or options.logit_bias
        or options.banned_token_ids
    )


def sampling_state(
    options: GenerationOptions, prompt: Sequence[int], times: TimeRule | None = None
) -> SamplingState | None:
    """The state of a sequence that begins with ``prompt``; None where neither options nor the package need one."""
    return SamplingState(options, prompt, times) if needs_state(options) or times is not None else None


def _processors(options: GenerationOptions, prompt: Sequence[int], times: TimeRule | None) -> Iterator[Processor]:
    """The processors in the documented order: those that change logits, then those that ban."""
    if options.logit_bias:
        yield LogitBias(options.logit_bias)
    if options.repetition_penalty != 1:
        yield RepetitionPenalty(options, prompt)
    if options.frequency_penalty or options.presence_penalty:
        yield OutputPenalty(options)
    if options.dry_multiplier:
        yield Dry(options, prompt)
    if options.no_repeat_ngram_size:
        yield NoRepeatNgram(options, prompt)
    if options.banned_token_ids:
        yield BannedTokens(options.banned_token_ids)
    if times is not None:
        yield TimeMarks(times)

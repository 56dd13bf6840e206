"""Events to the objects of ``/v1/completions``: chunks of a stream, or one completion. Both say the same."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.server.openai.completions import CompletionBody
from genai_pipeline.server.openai.envelope import Envelope, Tally
from genai_pipeline.server.openai.logprobs import BytesOf, TextLogprobs
from genai_pipeline.server.openai.pieces import Pieces, Whole
from genai_pipeline.types import Event, TokenLogprobs

JsonObject = dict[str, Any]
KIND: Final = "text_completion"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it is shown before its answers, and its tokens where those are scored."""

    text: str
    tokens: tuple[int, ...] = ()


class TextChunks:
    """A stream. Choice c of prompt p has the index p * n + c."""

    def __init__(
        self, envelope: Envelope, body: CompletionBody, prompts: Sequence[Prompt], bytes_of: BytesOf, choices: int
    ) -> None:
        """``prompts``: what is shown before the answers, empty where nothing is; ``choices``: n."""
        self._head = {**envelope.fields(KIND), **({"usage": None} if body.usage else {})}
        self._usage = body.usage
        self._prompts = prompts
        self._choices = choices
        self._scored = body.logprobs is not None
        self._pieces: defaultdict[int, Pieces] = defaultdict(lambda: Pieces(scored=self._scored))
        self._scores: defaultdict[int, TextLogprobs] = defaultdict(lambda: TextLogprobs(bytes_of))
        self._tally = Tally()
        self._begun: set[int] = set()

    def event(self, event: Event, prompt: int = 0) -> Iterator[JsonObject]:
        """The chunks of one event of the answers to a prompt."""
        self._tally.note(event, prompt)
        piece = self._pieces[prompt].add(event)
        index = prompt * self._choices + piece.index
        if index not in self._begun:
            self._begun.add(index)
            if self._prompts:
                yield self._chunk(index, text=self._prompts[prompt].text)
        if piece.says:
            logprobs = None
            if piece.logprobs:
                logprobs = self._scores[index].added(piece.logprobs)
            reasoning = {"reasoning_content": piece.reasoning} if piece.reasoning else {}
            yield self._chunk(index, text=piece.content, logprobs=logprobs, **reasoning)
        if piece.finish_reason is not None:
            yield self._chunk(index, finish_reason=piece.finish_reason)

    def end(self) -> Iterator[JsonObject]:
        """The chunks after the last event."""
        if self._usage:
            yield {**self._head, "choices": [], "usage": self._tally.usage()}

    def _chunk(self, index: int, **given: Any) -> JsonObject:
        choice = {"text": "", "index": index, "logprobs": None, "finish_reason": None, **given}
        return {**self._head, "choices": [choice]}


class TextCompletion:
    """One object at the end."""

    def __init__(self, envelope: Envelope, body: CompletionBody, prompts: Sequence[Prompt], bytes_of: BytesOf) -> None:
        """``prompts``: what is shown before the answers, empty where nothing is."""
        self._head = envelope.fields(KIND)
        self._body = body
        self._prompts = prompts
        self._bytes_of = bytes_of
        self._scored = body.logprobs is not None
        self._pieces: defaultdict[int, Pieces] = defaultdict(lambda: Pieces(scored=True))
        self._answers: defaultdict[int, defaultdict[int, Whole]] = defaultdict(lambda: defaultdict(Whole))
        self._scores: dict[int, tuple[TokenLogprobs, ...]] = {}  # of prompts
        self._tally = Tally()

    def event(self, event: Event, prompt: int = 0) -> None:
        """One more event of the answers to a prompt."""
        self._tally.note(event, prompt)
        piece = self._pieces[prompt].add(event)
        self._answers[prompt][piece.index].add(piece)
        if event.prompt_logprobs is not None:
            self._scores[prompt] = event.prompt_logprobs

    def object(self) -> JsonObject:
        """The completion."""
        choices = [self._choice(prompt, whole) for prompt in sorted(self._answers) for whole in self._shown(prompt)]
        numbered = [{**choice, "index": index} for index, choice in enumerate(choices)]
        return {**self._head, "choices": numbered, "usage": self._tally.usage()}

    def _shown(self, prompt: int) -> list[Whole]:
        """The answers to a prompt: all, or the best of them."""
        answers = [whole for _, whole in sorted(self._answers[prompt].items())]
        if self._body.wanted is None:
            return answers
        return sorted(answers, key=_mean_logprob, reverse=True)[: self._body.wanted]

    def _choice(self, prompt: int, whole: Whole) -> JsonObject:
        shown = self._prompts[prompt] if self._prompts else None
        text, reasoning = "".join(whole.content), "".join(whole.reasoning)
        return {
            "text": text if shown is None else shown.text + text,
            "index": 0,
            "logprobs": self._logprobs(shown, self._scores.get(prompt, ()), whole) if self._scored else None,
            "finish_reason": whole.finish_reason,
            **({"reasoning_content": reasoning} if reasoning else {}),
        }

    def _logprobs(self, shown: Prompt | None, scores: Sequence[TokenLogprobs], whole: Whole) -> JsonObject:
        made = TextLogprobs(self._bytes_of)
        if shown is not None:
            made.prompt(shown.tokens, scores, shown.text)
        return made.added(whole.logprobs)


def _mean_logprob(whole: Whole) -> float:
    """By what the best answers are chosen: the log probability per token."""
    return math.fsum(one.logprob for one in whole.logprobs) / max(1, len(whole.logprobs))

"""Events to the objects of ``/v1/chat/completions``: chunks of a stream, or one completion. Both say the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from genai_pipeline.server.openai.envelope import Envelope, Tally
from genai_pipeline.server.openai.logprobs import BytesOf, chat_logprobs
from genai_pipeline.server.openai.pieces import Piece, Pieces, Whole
from genai_pipeline.types import Event

JsonObject = dict[str, Any]
CHUNK = "chat.completion.chunk"
COMPLETION = "chat.completion"


class ChatChunks:
    """A stream: the role, what the answer says, the finish reason; usage at the end where it was asked for."""

    def __init__(self, envelope: Envelope, pieces: Pieces, bytes_of: BytesOf, *, usage: bool) -> None:
        self._head = {**envelope.fields(CHUNK), **({"usage": None} if usage else {})}
        self._pieces = pieces
        self._bytes_of = bytes_of
        self._usage = usage
        self._tally = Tally()
        self._begun: set[int] = set()

    def event(self, event: Event, prompt: int = 0) -> Iterator[JsonObject]:
        """The chunks of one event; there is one prompt."""
        self._tally.note(event)
        piece = self._pieces.add(event)
        if piece.index not in self._begun:
            self._begun.add(piece.index)
            yield self._chunk(piece.index, {"role": "assistant", "content": "", "refusal": None})
        if piece.says:
            yield self._chunk(piece.index, _delta(piece), logprobs=self._logprobs(piece))
        if piece.finish_reason is not None:
            yield self._chunk(piece.index, {}, piece.finish_reason)

    def end(self) -> Iterator[JsonObject]:
        """The chunks after the last event."""
        if self._usage:
            yield {**self._head, "choices": [], "usage": self._tally.usage()}

    def _chunk(
        self, index: int, delta: JsonObject, finish_reason: str | None = None, *, logprobs: JsonObject | None = None
    ) -> JsonObject:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def _logprobs(self, piece: Piece) -> JsonObject | None:
        return chat_logprobs(piece.logprobs, self._bytes_of) if piece.logprobs else None


def _delta(piece: Piece) -> JsonObject:
    delta: JsonObject = {}
    if piece.reasoning:
        delta["reasoning_content"] = piece.reasoning
    if piece.content:
        delta["content"] = piece.content
    if piece.calls:
        delta["tool_calls"] = [call.to_dict() for call in piece.calls]
    return delta


class ChatCompletion:
    """One object at the end."""

    def __init__(
        self,
        envelope: Envelope,
        pieces: Pieces,
        bytes_of: BytesOf,
        *,
        scored: bool,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._head = {**envelope.fields(COMPLETION), **({} if metadata is None else {"metadata": dict(metadata)})}
        self._pieces = pieces
        self._bytes_of = bytes_of
        self._scored = scored
        self._tally = Tally()
        self._choices: defaultdict[int, Whole] = defaultdict(Whole)

    def event(self, event: Event) -> None:
        """One more event."""
        self._tally.note(event)
        piece = self._pieces.add(event)
        self._choices[piece.index].add(piece)

    def object(self) -> JsonObject:
        """The completion."""
        choices = [
            {
                "index": index,
                "message": _message(whole),
                "logprobs": chat_logprobs(whole.logprobs, self._bytes_of) if self._scored else None,
                "finish_reason": whole.finish_reason,
            }
            for index, whole in sorted(self._choices.items())
        ]
        return {**self._head, "choices": choices, "usage": self._tally.usage()}


def _message(whole: Whole) -> JsonObject:
    """The answer as a message; without text beside calls its content is null."""
    calls = whole.whole_calls()
    text, reasoning = "".join(whole.content), "".join(whole.reasoning)
    message: JsonObject = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [call.to_dict() for call in calls]
    return message

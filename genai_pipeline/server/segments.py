"""An answer cut into segments as its events come: reasoning, text, calls, one after the other.

Interfaces whose answers are lists of blocks or items (Responses, Messages) are written from the changes of segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.openai.fields import calls_follow_grammar
from genai_pipeline.server.openai.pieces import Piece, Pieces
from genai_pipeline.types import Event, FinishReason, TokenLogprobs, ToolCallDelta, Usage

Kind = Literal["reasoning", "text", "call"]


@dataclass(slots=True)
class Segment:
    """One block of an answer: ``id`` and ``name`` are those of a call, whose text is its arguments as JSON."""

    index: int
    kind: Kind
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    scores: list[TokenLogprobs] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of its text so far."""
        return "".join(self.pieces)


class Change(NamedTuple):
    """A segment begins, goes on by some text, or ends."""

    what: Literal["begin", "more", "end"]
    segment: Segment
    text: str = ""
    scores: tuple[TokenLogprobs, ...] = ()


class Segments:
    """The segments of one choice so far, and how it ended. An answer of nothing has one empty segment of text."""

    def __init__(self, *, live: bool) -> None:
        """``live``: calls are written by a grammar, so that their arguments come as they are made."""
        self.all: list[Segment] = []
        self.finish_reason: FinishReason | None = None
        self.stop_string: str | None = None
        self.error: BaseException | None = None
        self.usage: Usage | None = None
        self.tokens = 0
        self.reasoning_tokens = 0
        self._pieces = Pieces(live=live)
        self._open: Segment | None = None
        self._calls: dict[int, Segment] = {}
        self._begun: set[str] = set()  # ids of calls that earlier events began
        self._scores: list[TokenLogprobs] = []  # of tokens whose text is not out yet

    def add(self, event: Event) -> Iterator[Change]:
        """What one more event changes. Raises ApiError for a request that was ended from outside."""
        self._note(event)
        piece = self._pieces.add(event)
        if piece.reasoning:
            yield from self._more("reasoning", piece.reasoning)
        else:
            self._scores.extend(piece.logprobs)
        yield from self._said(piece)
        self._begun.update(delta.id for delta in event.tool_calls if delta.id is not None)
        if piece.finish_reason is not None:
            if not self.all and self.error is None:
                yield from self._begin(Segment(0, "text"))
            yield from self._end()

    def _note(self, event: Event) -> None:
        self.tokens += event.token is not None
        if event.reasoning:
            self.reasoning_tokens = self.tokens
        if event.finish_reason is not None:
            self.finish_reason, self.stop_string = event.finish_reason, event.stop_string
            self.error, self.usage = event.error, event.usage

    def _said(self, piece: Piece) -> Iterator[Change]:
        """Text and calls; a call that was begun before comes before the text."""
        first = any(delta.id is None or delta.id in self._begun for delta in piece.calls)
        if piece.content and not first:
            yield from self._more("text", piece.content)
        for delta in piece.calls:
            yield from self._call(delta)
        if piece.content and first:
            yield from self._more("text", piece.content)

    def _more(self, kind: Kind, text: str) -> Iterator[Change]:
        if self._open is None or self._open.kind != kind:
            yield from self._begin(Segment(len(self.all), kind))
        assert self._open is not None
        scores: tuple[TokenLogprobs, ...] = ()
        if kind == "text":
            scores, self._scores = tuple(self._scores), []
        self._open.pieces.append(text)
        self._open.scores.extend(scores)
        yield Change("more", self._open, text, scores)

    def _call(self, delta: ToolCallDelta) -> Iterator[Change]:
        call = self._calls.get(delta.index)
        if call is None:
            call = Segment(len(self.all), "call", delta.id or "", delta.name or "")
            self._calls[delta.index] = call
            yield from self._begin(call)
        if delta.arguments:
            call.pieces.append(delta.arguments)
            yield Change("more", call, delta.arguments)

    def _begin(self, segment: Segment) -> Iterator[Change]:
        yield from self._end()
        if segment.kind == "call":
            self._scores = []
        self.all.append(segment)
        self._open = segment
        yield Change("begin", segment)

    def _end(self) -> Iterator[Change]:
        if self._open is not None:
            ended, self._open = self._open, None
            yield Change("end", ended, ended.text)


def calls_stream(options: Mapping[str, Any], pipe: Pipeline) -> bool:
    """Whether the arguments of calls may be sent as they are made.

    A grammar writes these calls, so they are never malformed, and nothing but a limit can cut them.
    """
    return calls_follow_grammar(options) and "stop" not in options and not pipe.options().stop

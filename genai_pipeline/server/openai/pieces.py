"""What events add to each choice as clients see it. Nothing that a client gets is taken back later.

A tool call in the making may turn out to be none: then all of it is text. So a call is held back until it is whole,
and comes in one piece. Where a grammar binds the calls (see ``fields.calls_follow_grammar``) they can only be cut
off by a limit, and their arguments come as they are made; a call that is cut ends there, and the finish reason says so.

Log probabilities come with the text of their tokens: those of tokens that turn out to write a stop string never do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from genai_pipeline.server.api_errors import ApiError, unavailable
from genai_pipeline.types import Event, TokenLogprobs, ToolCall, ToolCallDelta


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds to a choice; tool calls are numbered without gaps."""

    index: int
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: str | None = None

    @property
    def says(self) -> bool:
        """Whether a client has anything of it."""
        return bool(self.content or self.reasoning or self.calls or self.logprobs)


class Pieces:
    """Of the choices of one request."""

    def __init__(self, *, live: bool = False, scored: bool = True) -> None:
        """``live``: pieces of calls are passed on at once. ``scored``: log probabilities are passed on too."""
        self._scored = scored
        self._waiting: defaultdict[int, list[TokenLogprobs]] = defaultdict(list)  # of tokens whose text is not out
        self._calls: defaultdict[int, Calls] = defaultdict(LiveCalls if live else HeldCalls)

    def add(self, event: Event) -> Piece:
        """What an event comes to; the log probability of an end token, which is no part of an answer, is left out.

        Raises ApiError for a request that was ended from outside.
        """
        if event.finish_reason == "cancelled":
            raise unavailable("the request was cancelled", code="cancelled")
        content, calls = self._calls[event.index].take(event)
        return Piece(event.index, content, event.reasoning, calls, self._logprobs(event), event.finish_reason)

    def _logprobs(self, event: Event) -> tuple[TokenLogprobs, ...]:
        """The log probabilities of the tokens whose text is known not to be a stop string's, as of now."""
        waiting = self._waiting[event.index]
        if event.logprobs is not None and event.token is not None and self._scored:
            waiting.append(event.logprobs)
        said = event.text or event.reasoning or event.tool_calls
        if not waiting or not (said or (event.finish_reason is not None and event.stop_string is None)):
            return ()
        self._waiting[event.index] = []
        return tuple(waiting)


class Calls(ABC):
    """The tool calls of one choice."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of calls that clients know, by the index in events

    @abstractmethod
    def take(self, event: Event) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """The text and the pieces of calls that may be sent with an event."""

    def _numbered(self, delta: ToolCallDelta) -> ToolCallDelta:
        return replace(delta, index=self._numbers.setdefault(delta.index, len(self._numbers)))


class HeldCalls(Calls):
    """Calls are held back until they are whole: another one begins, text follows, or the answer ends."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, list[ToolCallDelta]] = {}

    def take(self, event: Event) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """See Calls.take."""
        if not event.tool_calls and not self._held:
            return event.text, ()
        before = list(self._held)  # begun with earlier events: text in this one, if it is not theirs, follows them
        whole: list[ToolCallDelta] = []
        for delta in event.tool_calls:
            if delta.withdrawn:
                self._held.pop(delta.index, None)
                continue
            if delta.index not in self._held:
                whole += self._release(list(self._held))
                self._held[delta.index] = []
            self._held[delta.index].append(delta)
        if event.finish_reason is not None:
            whole += self._release(list(self._held))
        elif event.text:
            whole += self._release([index for index in before if index in self._held])
        return event.text, tuple(whole)

    def _release(self, indices: Iterable[int]) -> list[ToolCallDelta]:
        return [self._numbered(_joined(self._held.pop(index))) for index in indices]


class LiveCalls(Calls):
    """Pieces of calls are passed on as they come."""

    def take(self, event: Event) -> tuple[str, tuple[ToolCallDelta, ...]]:
        """See Calls.take. The text of a call that was cut is not sent: the client has the call.

        Raises ApiError for a call that is taken back before the end, against its grammar.
        """
        cut = False
        fresh: dict[int, list[ToolCallDelta]] = {}
        for delta in event.tool_calls:
            if not delta.withdrawn:
                fresh.setdefault(delta.index, []).append(delta)
                continue
            fresh.pop(delta.index, None)
            cut = cut or delta.index in self._numbers
        if cut and event.finish_reason is None:
            message = "the model's tool call does not follow its grammar"
            raise ApiError(500, message, type="server_error", code="invalid_tool_call")
        pieces = tuple(self._numbered(delta) for deltas in fresh.values() for delta in deltas)
        return "" if cut else event.text, pieces


def _joined(deltas: list[ToolCallDelta]) -> ToolCallDelta:
    """The pieces of one call as one."""
    return replace(deltas[0], arguments="".join(delta.arguments for delta in deltas))


@dataclass(slots=True)
class Whole:
    """A choice put together from its pieces."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[ToolCallDelta]] = field(default_factory=dict)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, piece: Piece) -> None:
        """One more piece."""
        self.content.append(piece.content)
        self.reasoning.append(piece.reasoning)
        for delta in piece.calls:
            self.calls.setdefault(delta.index, []).append(delta)
        self.logprobs.extend(piece.logprobs)
        self.finish_reason = piece.finish_reason or self.finish_reason

    def whole_calls(self) -> list[ToolCall]:
        """Each call; one that was cut as far as it came."""
        joined = [_joined(deltas) for _, deltas in sorted(self.calls.items())]
        return [ToolCall(call.id or "", call.name or "", call.arguments) for call in joined]

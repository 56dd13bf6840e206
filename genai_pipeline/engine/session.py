"""Conversations that keep their state: each turn computes only what is new; they fork, rewind and are saved.

A session keeps messages and the token ids of all turns. A new turn renders the whole conversation again; what of it
has the same tokens as before is found among the kept pages, so the template may rewrite earlier turns as it likes.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from genai_pipeline.engine.collect import Answer
from genai_pipeline.errors import EngineClosedError, EngineFailedError, RequestError
from genai_pipeline.preprocess.kept_media import kept_content
from genai_pipeline.types import Event, Result

if TYPE_CHECKING:
    from genai_pipeline.engine.streams import AsyncStream, Stream, Submit
    from genai_pipeline.kv.page_store import Match
    from genai_pipeline.kv.prefix_keys import Identity

    Asked = tuple[Submit, tuple[int, ...], tuple[Identity, ...]]

Message = Mapping[str, Any]
MESSAGE_FIELDS = ("name", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of a session to come back to."""

    messages: tuple[Message, ...]
    tokens: tuple[int, ...]
    identities: tuple[Identity, ...] = ()  # whose slots tokens are


@dataclass(frozen=True, slots=True)
class Pin:
    """State that is kept for a session; ``orphaned`` tells the host when the session goes without letting it go."""

    match: Match
    orphaned: weakref.finalize[..., Session]


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation up to something that was just said, and the request for the answer."""

    messages: tuple[Message, ...]
    submit: Submit
    prompt: tuple[int, ...]
    identities: tuple[Identity, ...] = ()

    def mark(self, answer: Answer) -> Mark:
        """The moment after an answer."""
        return Mark((*self.messages, answer.message()), (*self.prompt, *answer.tokens), self.identities)


class AsyncTurn(AsyncIterator[Event]):
    """The events of a turn that is under way, for asyncio; closed early, the answer so far is the answer."""

    def __init__(self, turn: Turn, events: AsyncStream, go: Callable[[Mark], None]) -> None:
        self._turn = turn
        self._events = events
        self._go = go
        self._answer = Answer()
        self._settled = False
        self.prompt_tokens = events.prompt_tokens

    async def __anext__(self) -> Event:
        try:
            event = await anext(self._events)
        except StopAsyncIteration:
            await self.aclose()
            raise
        self._settled = self._settled or event.error is not None
        self._answer.add(event)
        return event

    async def aclose(self) -> None:
        """The turn is over: the session goes on from here, unless the turn failed."""
        await self._events.aclose()
        if not self._settled:
            self._settled = True
            await asyncio.to_thread(self._go, self._turn.mark(self._answer))

    async def abandon(self) -> None:
        """Cancel the turn unless it is over: it never was."""
        self._settled = True
        await self._events.aclose()


class SessionHost(Protocol):
    """What a session needs of the pipeline it belongs to; every call is safe from any thread."""

    def ask(self, messages: Sequence[Message], salt: bytes, options: Mapping[str, Any]) -> Asked:
        """A turn, ready to be submitted, and its prompt's tokens with their identities."""

    def pin(self, session: Session, salt: bytes) -> Pin:
        """Keep the state of a session's tokens until it is unpinned or the session is no more."""

    def unpin(self, session: Session, pin: Pin) -> None:
        """Let pinned state go when room is needed."""

    def save(self, path: str, mark: Mark, salt: bytes) -> None:
        """Write a session to a file."""


class Session:
    """One conversation. A context manager; use it from one thread at a time."""

    def __init__(self, host: SessionHost, salt: bytes, mark: Mark = Mark((), ())) -> None:
        self._host = host
        self._salt = salt
        self._mark = mark
        self._pinned: Pin | None = None
        self._closed = False
        self._lock = threading.Lock()
        self.last_used = time.monotonic()
        self._pin()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation so far."""
        return self._mark.messages

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids of the conversation so far: the last prompt and its answer."""
        return self._mark.tokens

    def chat(self, content: str | Sequence[Mapping[str, Any]], *, role: str = "user", **options: Any) -> Result:
        """Say something and wait for the answer. Raises the error that ended the turn, which then never was."""
        from genai_pipeline.engine.collect import collect_result

        turn = self.stream(content, role=role, **options)
        return collect_result(turn)

    def stream(
        self, content: str | Sequence[Mapping[str, Any]], *, role: str = "user", **options: Any
    ) -> Iterator[Event]:
        """Say something and get the answer's events; closed early, the answer so far is the answer.

        ``name`` and ``tool_call_id`` belong to the message, as the result of a tool has them (``role="tool"``).
        """
        from genai_pipeline.engine.streams import Stream

        turn = self._turn(content, role, options)
        return self._follow(turn, Stream(turn.submit))

    async def astream(
        self, content: str | Sequence[Mapping[str, Any]], *, role: str = "user", **options: Any
    ) -> AsyncIterator[Event]:
        """``stream`` for asyncio; what takes time is done on worker threads. Bad turns raise at the first event."""
        async with aclosing(await self.aopen(content, role=role, **options)) as events:
            async for event in events:
                yield event

    async def aopen(
        self, content: str | Sequence[Mapping[str, Any]], *, role: str = "user", **options: Any
    ) -> AsyncTurn:
        """``astream`` for servers: the turn is read, checked and submitted before this returns; bad ones raise."""
        from genai_pipeline.engine.streams import AsyncStream

        turn = await asyncio.to_thread(self._turn, content, role, options)
        return AsyncTurn(turn, await AsyncStream.opened(lambda: (turn.submit, turn.prompt)), self._go)

    def checkpoint(self) -> Mark:
        """This moment, to rewind to."""
        return self._mark

    def rewind(self, to: Mark) -> None:
        """Go back to a moment of this session or of one it was forked from."""
        self._go(to)

    def fork(self) -> Session:
        """Another session that goes on from here by itself."""
        return Session(self._host, self._salt, self._mark)

    def save(self, path: str) -> None:
        """Write the conversation and its state to a file, for ``pipe.session(path)`` of any process.

        Raises CheckpointError.
        """
        self._host.save(path, self._mark, self._salt)

    def release_state(self) -> None:
        """Let the kept state go when room is needed; the next turn computes what is gone."""
        with self._lock:  # other sessions' threads call this too, when there are too many
            pinned, self._pinned = self._pinned, None
        if pinned is not None:
            with suppress(EngineClosedError, EngineFailedError):  # the state went with the engine
                self._host.unpin(self, pinned)

    def close(self) -> None:
        """End the session and let its state go."""
        if not self._closed:
            self._closed = True
            self.release_state()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(self, content: Any, role: str, options: dict[str, Any]) -> Turn:
        """The next turn. Raises RequestError or OptionError."""
        if self._closed:
            raise RequestError("the session is closed", hint="open another one")
        if options.get("n", 1) != 1:
            raise RequestError("a session goes on with one answer: n must be 1", param="n")
        named = {name: options.pop(name) for name in MESSAGE_FIELDS if name in options}
        content = kept_content(content, options)
        messages = (*self._mark.messages, {"role": role, "content": content, **named})
        return Turn(messages, *self._host.ask(messages, self._salt, options))

    def _follow(self, turn: Turn, events: Stream) -> Iterator[Event]:
        answer, failed = Answer(), False
        try:
            with events:
                for event in events:
                    failed = failed or event.error is not None
                    answer.add(event)
                    yield event
        finally:
            if not failed:
                self._go(turn.mark(answer))

    def _go(self, mark: Mark) -> None:
        self._mark = mark
        self.last_used = time.monotonic()
        self.release_state()
        self._pin()

    def _pin(self) -> None:
        if self._mark.tokens and not self._closed:
            self._pinned = self._host.pin(self, self._salt)

"""Events of a model on their way to a client: an early error is a status, a later one ends the stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import Request

from genai_pipeline.server.api_errors import ApiError, api_error, openai_body
from genai_pipeline.server.asking import Asked
from genai_pipeline.server.exchange import Exchange
from genai_pipeline.server.sse import Chunk
from genai_pipeline.types import Event

Names = Mapping[str, str]
Numbered = tuple[int, Event]  # which of several prompts an event answers

_log = logging.getLogger("genai_pipeline.server")


class Writer(Protocol):
    """Makes the chunks of a stream."""

    def event(self, event: Event, prompt: int) -> Iterable[Mapping[str, Any]]:
        """The chunks of one event. Raises ApiError."""

    def end(self) -> Iterable[Mapping[str, Any]]:
        """The chunks after the last event."""


async def numbered(answers: Sequence[Asked]) -> AsyncGenerator[Numbered, None]:
    """The events of several answers as they come, each with the number of its answer."""
    if len(answers) == 1:
        async for event in answers[0]:
            yield 0, event
        return
    events: asyncio.Queue[Numbered | BaseException | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_pass_on(number, asked, events)) for number, asked in enumerate(answers)]
    try:
        running = len(tasks)
        while running:
            item = await events.get()
            if isinstance(item, BaseException):
                raise item
            running -= item is None
            if item is not None:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(number: int, asked: Asked, events: asyncio.Queue[Numbered | BaseException | None]) -> None:
    try:
        async for event in asked:
            events.put_nowait((number, event))
    except Exception as error:  # noqa: BLE001 - raised where the events are read
        events.put_nowait(error)
    else:
        events.put_nowait(None)


async def whole(events: AsyncGenerator[Numbered, None], names: Names) -> AsyncGenerator[Numbered, None]:
    """The events of a response without streaming. Raises ApiError for what ended it early."""
    async with aclosing(events):
        async for number, event in events:
            _check(event, names)
            yield number, event


async def opened(
    request: Request, events: AsyncGenerator[Numbered, None], names: Names
) -> AsyncGenerator[Numbered, None]:
    """The same events once the first one is there, or after as long as a stream may be silent.

    Raises ApiError where the first one is an error: it is told with its status.
    """
    exchange: Exchange = request.state.exchange
    first = asyncio.ensure_future(anext(events, None))
    exchange.held.push_async_callback(events.aclose)
    exchange.held.push_async_callback(_stopped, first)  # before that
    seconds: float = request.app.state.config.limits.keep_alive_seconds
    await asyncio.wait((first,), timeout=seconds)
    if first.done() and (item := first.result()) is not None:
        _check(item[1], names)
    return _from(first, events)


async def _from(
    first: asyncio.Future[Numbered | None], events: AsyncGenerator[Numbered, None]
) -> AsyncGenerator[Numbered, None]:
    try:
        item = await first
        if item is None:
            return
        yield item
        async for item in events:
            yield item
    finally:
        await _stopped(first)
        await events.aclose()


async def _stopped(first: asyncio.Future[Numbered | None]) -> None:
    """Nobody waits for the first event any more."""
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def chunks(events: AsyncGenerator[Numbered, None], writer: Writer, names: Names) -> AsyncIterator[Chunk]:
    """What is sent of a stream, up to the sign that it is over; an error comes instead of that."""
    try:
        async with aclosing(events):
            async for number, event in events:
                _check(event, names)
                for chunk in writer.event(event, number):
                    yield chunk
    except ApiError as error:
        note_failure(error)
        yield openai_body(error)
        return
    for chunk in writer.end():
        yield chunk
    yield "[DONE]"


def note_failure(error: ApiError) -> None:
    """Log why a stream ended early, where the fault is not the client's."""
    if error.status >= 500:
        cause = error.__cause__ or error
        extra = {"event": "failed", "error": error.code, "reason": str(cause)}
        _log.error("a stream failed: %s", cause, extra=extra)


def _check(event: Event, names: Names) -> None:
    if event.error is not None:
        raise api_error(event.error, names) from event.error

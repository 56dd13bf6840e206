"""What a consumer holds: an iterator of one request's events, blocking or for asyncio; closing it cancels."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType

from genai_pipeline.engine.request import Emit
from genai_pipeline.types import Event

Submit = Callable[[Emit], Callable[[], None]]  # starts a request that emits there, and gives what cancels it


class Stream(Iterator[Event]):
    """Blocking iterator over the events of a request. A consumer that is lost (collected) cancels too."""

    def __init__(self, submit: Submit) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._ended = True  # until the request is in
        self._cancel = submit(self._events.put)
        self._ended = False

    def __next__(self) -> Event:
        if self._ended:
            raise StopIteration
        event = self._events.get()
        if event is None:
            self._ended = True
            raise StopIteration
        return event

    def close(self) -> None:
        """Cancel the request unless it has ended; its remaining events are dropped."""
        if not self._ended:
            self._ended = True
            self._cancel()

    def cancel(self) -> None:
        """End the request early; the stream goes on to its last event, whose finish reason is ``cancelled``."""
        self._cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class AsyncStream(AsyncIterator[Event]):
    """The same for asyncio: events are handed to the loop that made the stream, so nothing there ever blocks."""

    def __init__(self, submit: Submit | None = None) -> None:
        self._ended = True  # first: without a running loop there is nothing to end
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self.prompt_tokens = 0  # length of the prompt, where the stream was opened with it
        if submit is not None:
            self._begun(submit(self._emit))

    @staticmethod
    async def opened(begin: Callable[[], tuple[Submit, Sequence[int]]]) -> AsyncStream:
        """A stream whose request, and its prompt's tokens, are made and submitted on a worker thread.

        The event loop never waits for it.
        """
        stream = AsyncStream()

        def start() -> Callable[[], None]:
            submit, prompt = begin()
            stream.prompt_tokens = len(prompt)
            return submit(stream._emit)

        task = asyncio.ensure_future(asyncio.to_thread(start))
        try:
            stream._begun(await asyncio.shield(task))
        except asyncio.CancelledError:
            task.add_done_callback(_cancel_late)
            raise
        return stream

    def _begun(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._ended = False

    def _emit(self, event: Event | None) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is None:
            self._ended = True
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Cancel the request unless it has ended; its remaining events are dropped."""
        if not self._ended:
            self._ended = True
            self._cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if not self._ended:
            self._cancel()


def _cancel_late(task: asyncio.Future[Callable[[], None]]) -> None:
    """Whoever asked has gone while the request was made: it ends as soon as it is in."""
    if not task.cancelled() and task.exception() is None:
        task.result()()

"""Server-sent events: a response that streams, with comments while it is silent; it ends with its client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from genai_pipeline.server.json_text import dumps

KEEP_ALIVE: Final = b": keep-alive\n\n"
HEADERS: Final = {"cache-control": "no-cache", "x-accel-buffering": "no"}


@dataclass(frozen=True, slots=True)
class Named:
    """An event with a name of its own, as Anthropic's streams have them."""

    event: str
    data: Mapping[str, Any]

    @staticmethod
    def of(event: Mapping[str, Any]) -> Named:
        """An event by the name that it has as its type."""
        return Named(event["type"], event)


Chunk = str | Mapping[str, Any] | Named


def frame(chunk: Chunk) -> bytes:
    """One event as bytes: text as it is, anything else as JSON."""
    name = f"event: {chunk.event}\n" if isinstance(chunk, Named) else ""
    data = chunk.data if isinstance(chunk, Named) else chunk
    text = data if isinstance(data, str) else dumps(data)
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"{name}{lines}\n".encode("utf-8", errors="replace")


class EventStreamResponse(Response):
    """Streams chunks as server-sent events; whatever happens, the iterator is closed at the end.

    Errors that can be told with a status belong before this: the first byte is sent when it is called. What ends a
    stream early is the chunks' own to tell.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncIterator[Chunk],
        *,
        headers: Mapping[str, str] | None = None,
        keep_alive: float | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({**HEADERS, **(headers or {})})
        self._chunks = chunks
        self._keep_alive = keep_alive
        self._sending = asyncio.Lock()
        self._silent = True  # since the last look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; cancelled when the client goes."""
        seconds = self._keep_alive or scope["app"].state.config.limits.keep_alive_seconds
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        comments = asyncio.create_task(self._comment(send, seconds))
        try:
            async for chunk in self._chunks:
                await self._send(send, frame(chunk))
        finally:
            comments.cancel()
            await asyncio.gather(comments, return_exceptions=True)
            await _close(self._chunks)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, data: bytes) -> None:
        async with self._sending:
            self._silent = False
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _comment(self, send: Send, seconds: float) -> None:
        while True:
            self._silent = True
            await asyncio.sleep(seconds)
            if self._silent and not self._sending.locked():
                await self._send(send, KEEP_ALIVE)


async def _close(chunks: AsyncIterator[Chunk]) -> None:
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()

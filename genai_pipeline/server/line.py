"""A client's line: reading and writing with time limits, and word when the client has gone."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope, Send

from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.limits import Limits


class ClientGoneError(Exception):
    """The client has left, or takes nothing any more: whatever is done for it may end."""


class Line:
    """``receive`` and ``send`` of one request, for the task that makes it; that task is cancelled when the client goes.

    ``started`` and ``complete`` say how far the response is; ``gone`` that the client left before its end.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._bodiless = _has_no_body(scope)
        self._given = False  # the end of the body
        self._gone = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self.status = 0
        self.complete = False

    @property
    def started(self) -> bool:
        """Whether the status was sent."""
        return self.status != 0

    @property
    def gone(self) -> bool:
        """Whether the client left before the response was complete."""
        return self._gone.is_set() and not self.complete

    async def receive(self) -> Message:
        """A piece of the body; after its end, word that the client has gone. Raises ApiError 408."""
        if self._given:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        if self._bodiless:
            self._end_of_body()
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await self._piece()
        if message["type"] == "http.disconnect":
            self._gone.set()
            raise ClientGoneError
        if not message.get("more_body", False):
            self._end_of_body()
        return message

    async def send(self, message: Message) -> None:
        """A piece of the response. Raises ClientGoneError when the client takes nothing for too long."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body", False):
            self.complete = True
        try:
            async with asyncio.timeout(self._limits.send_seconds):
                await self._send(message)
        except TimeoutError:
            self._gone.set()
            self.complete = False
            raise ClientGoneError from None

    def watch(self) -> None:
        """Begin to listen for the client's leaving, where no body is to be read first."""
        if self._bodiless:
            self._end_of_body()
            self._given = False  # it may still be asked for, and is empty

    def hang_up(self) -> None:
        """Stop listening."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def _piece(self) -> Message:
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._receive()
        except TimeoutError:
            message = "the body did not come in time"
            raise ApiError(408, message, type="timeout_error", code="body_timeout") from None

    def _end_of_body(self) -> None:
        self._given = True
        if self._watcher is None:
            task = asyncio.current_task()
            assert task is not None
            self._watcher = asyncio.create_task(self._await_leaving(task))

    async def _await_leaving(self, task: asyncio.Task[None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if not self.complete:
            task.cancel()


def _has_no_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers

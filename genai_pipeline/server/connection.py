"""One connection: bounds on what comes in, which hold before there is a request to answer."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from genai_pipeline.server.api_errors import bad_request, openai_body
from genai_pipeline.server.json_text import dumps
from genai_pipeline.server.limits import Limits

UNREAD_BYTES: Final = 64 << 20  # of a body that nobody wants, before the connection is cut


class Connection(H11Protocol):
    """HTTP/1.1 with a time limit on headers, and no end of patience with bodies that were answered already."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._impatient: asyncio.TimerHandle | None = None
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, not for ever."""
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Take what came; while a request is only half there, its time runs."""
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self._unread += len(data)
            if self._unread > UNREAD_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._impatient is None and not self.transport.is_closing():
                self._await_headers()
        elif self._impatient is not None:
            self._impatient.cancel()
            self._impatient = None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        if self._impatient is not None:
            self._impatient.cancel()
            self._impatient = None
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or its headers are too large: say so in the API's own shape, and hang up."""
        body = dumps(openai_body(bad_request("this is not an HTTP request that can be read", code="invalid_http")))
        headers = [("content-type", "application/json"), ("connection", "close"), ("content-length", str(len(body)))]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body.encode("ascii")),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_headers(self) -> None:
        self._impatient = self.loop.call_later(self.limits.header_seconds, self._hang_up)

    def _hang_up(self) -> None:
        self._impatient = None
        if not self.transport.is_closing():
            self.transport.close()

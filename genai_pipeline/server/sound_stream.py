"""A response that streams sound in chunks; it ends with its client, and an error ends it without its last chunk."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.relay import note_failure
from genai_pipeline.server.sse import HEADERS


class SoundResponse(Response):
    """Streams bytes; whatever happens, their generator is closed at the end."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], media_type: str) -> None:
        self.status_code = 200
        self.background = None
        self.media_type = media_type
        self.init_headers(HEADERS)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; cancelled when the client goes. Raises ApiError, after which the connection is closed."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for data in self._pieces:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except ApiError as error:
            note_failure(error)
            raise
        finally:
            await self._pieces.aclose()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

"""Routes of the interface that no package served so far can answer: a clear 400 instead of a missing path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.api_errors import bad_request

_WORK: Final = {
    "/v1/embeddings": "makes embeddings",
    "/v1/audio/transcriptions": "transcribes audio",
    "/v1/audio/speech": "makes speech",
    "/v1/images/generations": "makes images",
}


def _refusing(work: str) -> Callable[[Request], Awaitable[Response]]:
    async def refuse(request: Request) -> Response:
        raise bad_request(f"no model that is served here {work}; GET /v1/models lists them", code="unsupported_task")

    return refuse


ROUTES = [Route(path, _refusing(work), methods=["POST"]) for path, work in _WORK.items()]

"""``/openapi.json``: what the server takes and gives, as an OpenAPI 3.1 document."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.openapi import document
from genai_pipeline.server.replies import json_reply

PATH = "/openapi.json"


async def describe(request: Request) -> Response:
    """This document."""
    return await json_reply(document(request.app.routes))


ROUTES = [Route(PATH, describe)]
OPEN = (PATH,)

"""``/v1/images/generations``: no package that can be served makes images yet; a clear 400 instead of a missing path."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.abilities import unsupported_task
from genai_pipeline.server.bodies import Fields, read_json


async def create(request: Request) -> Response:
    """Refused: no package makes images of a text yet. Raises ApiError."""
    host = request.app.state.host
    model = host.resolve(Fields(await read_json(request)).text("model"))
    raise unsupported_task(model, "draw", await host.abilities())


ROUTES = [Route("/v1/images/generations", create, methods=["POST"])]

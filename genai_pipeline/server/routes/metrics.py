"""``/metrics`` for Prometheus."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.gate import check_admin
from genai_pipeline.server.metrics import CONTENT_TYPE, Metrics


async def metrics(request: Request) -> Response:
    """Everything that is counted, in Prometheus's text format."""
    check_admin(request.state.caller)
    counted: Metrics = request.app.state.metrics
    content = await asyncio.to_thread(counted.text)
    return Response(content, headers={"content-type": CONTENT_TYPE})


ROUTES = [Route("/metrics", metrics)]
ASIDE = ("/metrics",)

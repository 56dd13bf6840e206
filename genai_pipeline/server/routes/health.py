"""``/health`` says whether the server lives and what it is at; ``/ready`` whether a request would be answered soon."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.api_errors import unavailable
from genai_pipeline.server.gate import DRAIN_RETRY_SECONDS, Gate
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.replies import json_reply

RETRY_SECONDS: Final = 2


async def health(request: Request) -> Response:
    """The process answers; what it is at is for those with a key, where keys are configured."""
    gate: Gate = request.app.state.gate
    body: dict[str, Any] = {"status": "draining" if gate.draining else "ok"}
    if request.state.caller.trusted:
        host: PackageHost = request.app.state.host
        figures = await asyncio.to_thread(host.stats)
        body |= {"requests": gate.inside, "models": [_shown(model) for model in figures]}
    return await json_reply(body)


async def ready(request: Request) -> Response:
    """200 when every package that is loaded at the start is loaded, and the server is not going down."""
    gate: Gate = request.app.state.gate
    if gate.draining:
        raise unavailable("the server is going down", code="draining", retry_after=DRAIN_RETRY_SECONDS)
    if not request.app.state.host.prepared:
        raise unavailable("models are being loaded", code="loading", retry_after=RETRY_SECONDS)
    return await json_reply({"status": "ready"})


def _shown(model: dict[str, Any]) -> dict[str, Any]:
    """What health says of a model: its state, its load, and what runs its graphs."""
    engine = model.get("engine", {})
    load = {name: engine[name] for name in ("running", "queue", "pages") if name in engine}
    shown = ("name", "state", "requests", "providers", "graphs")
    kept: dict[str, Any] = {name: model[name] for name in shown if name in model}
    return {**kept, **load}


ROUTES = [Route("/health", health), Route("/ready", ready)]
OPEN = ("/health", "/ready")

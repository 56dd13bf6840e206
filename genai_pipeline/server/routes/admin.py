"""``/admin``: what each package is at, and having one loaded or unloaded."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.gate import Gate, check_admin
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.replies import json_reply


async def status(request: Request) -> Response:
    """Every package with the figures of its engine."""
    check_admin(request.state.caller)
    gate: Gate = request.app.state.gate
    models = await asyncio.to_thread(request.app.state.host.stats)
    return await json_reply({"draining": gate.draining, "requests": gate.inside, "models": models})


async def load(request: Request) -> Response:
    """Load a package now, so that no request has to wait for it."""
    return await _moved(request, "load")


async def unload(request: Request) -> Response:
    """Unload a package once its requests have ended; the next request loads it again."""
    return await _moved(request, "unload")


async def _moved(request: Request, verb: str) -> Response:
    check_admin(request.state.caller)
    host: PackageHost = request.app.state.host
    name = host.resolve(request.path_params["name"])
    await {"load": host.load, "unload": host.unload}[verb](name)
    return await json_reply({"name": name, "loaded": host.is_loaded(name)})


ROUTES = [
    Route("/admin/status", status),
    Route("/admin/models/{name}/load", load, methods=["POST"]),
    Route("/admin/models/{name}/unload", unload, methods=["POST"]),
]
ASIDE = ("/admin/",)

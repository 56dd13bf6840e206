"""``/v1/models``: what is served here."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.abilities import Abilities
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.replies import json_reply


async def list_models(request: Request) -> Response:
    """All models by the names that requests use; the first one is the default."""
    host: PackageHost = request.app.state.host
    known = await host.abilities()
    data = [_model(host, name, request, known[name]) for name in host.served]
    shown = {"has_more": False, "first_id": host.served[0], "last_id": host.served[-1]}
    return await json_reply({"object": "list", "data": data, **shown})


async def get_model(request: Request) -> Response:
    """One model."""
    host: PackageHost = request.app.state.host
    name = host.resolve(request.path_params["name"])
    return await json_reply(_model(host, name, request, (await host.abilities())[name]))


def _model(host: PackageHost, name: str, request: Request, abilities: Abilities) -> dict[str, Any]:
    """A model with the fields of both interfaces, what it can do, and what runs its graphs where it is loaded."""
    created: int = request.app.state.metrics.started
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "genai_pipeline",
        "type": "model",
        "display_name": name,
        "loaded": host.is_loaded(name),
        "graphs": host.graphs(name),
        "input_modalities": list(abilities.takes),
        "output_modalities": list(abilities.gives),
        "tasks": list(abilities.tasks),
    }


ROUTES = [Route("/v1/models", list_models), Route("/v1/models/{name}", get_model)]

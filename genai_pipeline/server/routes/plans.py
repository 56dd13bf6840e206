"""``/admin/models/{name}/graph``: the compiled plan of a package, as the page draws it."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.server.api_errors import RETRY_SECONDS, ApiError, api_error, unavailable
from genai_pipeline.server.config import Served
from genai_pipeline.server.gate import check_admin
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.replies import json_reply


async def graph(request: Request) -> Response:
    """What ``inspect --format json`` shows of a package; one that is not loaded is compiled, not loaded, for this."""
    check_admin(request.state.caller)
    host: PackageHost = request.app.state.host
    name = host.resolve(request.path_params["name"])
    if host.is_loaded(name):
        async with host.use(name) as pipe:
            return await json_reply(await asyncio.to_thread(_shown, pipe.plan))
    (served,) = (served for served in request.app.state.config.packages if served.name == name)
    return await json_reply(await asyncio.to_thread(_compiled, served))


def _compiled(served: Served) -> dict[str, Any]:
    """The plan of a package on disk. Raises ApiError 503 when there is none."""
    from genai_pipeline.checking import check_package
    from genai_pipeline.config import LoadOptions
    from genai_pipeline.import_checks import check_made
    from genai_pipeline.importers.pull import lending, resolve

    try:
        path = resolve(served.package, precision=served.precision, check=check_made)
        load = LoadOptions.of(**served.load)
        checked = check_package(
            path, lending(), backend=load.backend, providers=load.providers, precision=served.precision
        )
    except GenaiError as error:
        raise api_error(error) from error
    if checked.plan is None:
        raise _broken()
    return _shown(checked.plan)


def _broken() -> ApiError:
    return unavailable("the package has problems and no plan", code="model_unavailable", retry_after=RETRY_SECONDS)


def _shown(plan: ExecutionPlan) -> dict[str, Any]:
    from genai_pipeline.graph.render import to_json

    return to_json(plan)


ROUTES = [Route("/admin/models/{name}/graph", graph)]

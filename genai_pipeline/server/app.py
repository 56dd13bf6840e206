"""The ASGI application: routes, what they share, and what stands around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.gate import Gate
from genai_pipeline.server.metrics import Metrics
from genai_pipeline.server.middleware import Around
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.routes import health, models

# Each has ROUTES, and perhaps OPEN: paths that need no key.
MODULES: Final[tuple[ModuleType, ...]] = (health, models)


def build_app(config: ServerConfig) -> Starlette:
    """The application; ``app.state`` has ``config``, ``host`` (the packages), ``gate`` and ``metrics``.

    ``request.state`` has ``id``, ``caller`` and ``exchange``.
    """
    host = PackageHost(config)
    return _application(config, host, MODULES)


def _application(config: ServerConfig, host: PackageHost, modules: Sequence[ModuleType]) -> Starlette:
    open_paths = frozenset(path for module in modules for path in getattr(module, "OPEN", ()))
    app = Starlette(
        routes=[route for module in modules for route in module.ROUTES],
        middleware=[*_cors(config), Middleware(Around)],
        exception_handlers={HTTPException: _raise},  # Around tells the client
        lifespan=_lifespan,
    )
    app.router.redirect_slashes = False
    app.state.config = config
    app.state.host = host
    app.state.gate = Gate(config, open_paths)
    app.state.metrics = Metrics(host)
    return app


async def _raise(request: Request, error: Exception) -> Response:
    raise error


def _cors(config: ServerConfig) -> list[Middleware]:
    if not config.cors:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=list(config.cors),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    ]


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    await app.state.host.close()

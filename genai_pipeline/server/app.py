"""The ASGI application: routes, what they share, and what stands around them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from genai_pipeline.server.media_urls import MediaFetcher
from genai_pipeline.server.metrics import Metrics
from genai_pipeline.server.middleware import Around
from genai_pipeline.server.packages import PackageHost
from genai_pipeline.server.room import Room
from genai_pipeline.server.routes import (
    admin,
    chat,
    completions,
    embeddings,
    health,
    images,
    messages,
    metrics,
    models,
    openapi,
    page,
    plans,
    responses,
    sessions,
    speech,
    tokens,
    transcriptions,
)

# Each has ROUTES, and perhaps OPEN: paths that need no key; ASIDE: those let in while the server goes down.
MODULES: Final[tuple[ModuleType, ...]] = (
    health,
    models,
    chat,
    completions,
    responses,
    messages,
    sessions,
    page,
    tokens,
    images,
    embeddings,
    transcriptions,
    speech,
    openapi,
)
ADMIN: Final[tuple[ModuleType, ...]] = (metrics, admin, plans)


def build_app(config: ServerConfig) -> Starlette:
    """The application; ``app.state`` has ``config``, ``host`` (the packages), ``gate``, ``media`` and ``metrics``.

    ``request.state`` has ``id``, ``caller`` and ``exchange``. Metrics and administration are part of it where they have
    no port of their own.
    """
    host = PackageHost(config)
    apart = () if config.admin_port is not None else admin_modules(config)
    return _application(config, host, Metrics(host), (*MODULES, *apart), _closing)


def build_admin_app(app: Starlette) -> Starlette:
    """Metrics, administration and health of an application, for a port of their own."""
    config: ServerConfig = app.state.config
    modules = (health, *admin_modules(config))
    made = _application(config, app.state.host, app.state.metrics, modules, None)
    made.state.gate = app.state.gate
    return made


def admin_modules(config: ServerConfig) -> tuple[ModuleType, ...]:
    """The modules about the server itself that are switched on."""
    return (*((metrics,) if config.metrics else ()), *((admin, plans) if config.admin else ()))


def _application(
    config: ServerConfig,
    host: PackageHost,
    counted: Metrics,
    modules: Sequence[ModuleType],
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None,
) -> Starlette:
    app = Starlette(
        routes=[route for module in modules for route in module.ROUTES],
        middleware=[*_cors(config), Middleware(Around)],
        exception_handlers={HTTPException: _raise},  # Around tells the client
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.config = config
    app.state.host = host
    app.state.gate = Gate(config, frozenset(_paths(modules, "OPEN")), (*_paths(ADMIN, "ASIDE"),))
    app.state.metrics = counted
    app.state.media = MediaFetcher(config.media)
    app.state.room = Room(config.limits.media_room_bytes)
    return app


def _paths(modules: Sequence[ModuleType], name: str) -> Iterator[str]:
    for module in modules:
        yield from getattr(module, name, ())


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
async def _closing(app: Starlette) -> AsyncIterator[None]:
    yield
    await app.state.host.close()

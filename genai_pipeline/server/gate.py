"""Who may come in: the address they ask for, the server's state, their key, and how many are inside already."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.datastructures import Headers

from genai_pipeline.server.api_errors import ApiError, too_many, unavailable
from genai_pipeline.server.callers import Caller, Callers
from genai_pipeline.server.config import LOCAL_NAMES, ServerConfig

DRAIN_RETRY_SECONDS = 10


READING: Final = frozenset(("GET", "HEAD", "OPTIONS"))  # methods that change nothing


class Gate:
    """Lets requests in one by one and knows how many are inside; closed for good when the server goes down."""

    def __init__(self, config: ServerConfig, open_paths: frozenset[str], aside: tuple[str, ...] = ()) -> None:
        """``open_paths`` need no key; paths that begin with one of ``aside`` are let in while the server goes down."""
        self._config = config
        self._callers = Callers(config.keys, config.anonymous)
        self._open_paths = open_paths
        self._aside = aside
        self._names = _names(config)
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()
        self.draining = False

    @property
    def inside(self) -> int:
        """Requests under way."""
        return self._inside

    @contextmanager
    def enter(self, path: str, headers: Headers, method: str = "GET") -> Iterator[Caller]:
        """One request, let in or turned away with ApiError 401, 403, 429, 431 or 503."""
        self._check_size(headers)
        self._check_host(headers)
        if method not in READING:
            self._check_origin(headers)
        if path in self._open_paths:
            yield self._known(headers)
            return
        caller = self._callers.identify(headers)
        if self._aside and path.startswith(self._aside):
            yield caller
            return
        if self.draining:
            raise unavailable("the server is going down", code="draining", retry_after=DRAIN_RETRY_SECONDS)
        most = self._config.limits.requests
        if self._inside >= most:
            raise too_many(f"the server has {most} requests under way", code="server_busy")
        self._inside += 1
        self._empty.clear()
        try:
            yield caller
        finally:
            self._inside -= 1
            if self._inside == 0:
                self._empty.set()

    def _check_size(self, headers: Headers) -> None:
        most = self._config.limits.header_bytes
        if sum(len(name) + len(value) for name, value in headers.raw) > most:
            raise ApiError(431, f"the headers are larger than {most} bytes", code="headers_too_large")

    async def drain(self, seconds: float) -> bool:
        """Let nobody in any more and wait for those inside; whether all have left in time."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    def _known(self, headers: Headers) -> Caller:
        """The caller of an open route; somebody without a key is nobody in particular, and no administrator."""
        try:
            return self._callers.identify(headers)
        except ApiError:
            return self._callers.stranger

    def _check_host(self, headers: Headers) -> None:
        """Other names for this machine may be a web page's trick to reach it through somebody's browser."""
        if self._names is not None and _host_name(headers.get("host", "")) not in self._names:
            message = "this server is not addressed by that name"
            raise ApiError(403, message, type="permission_error", code="host_not_allowed")

    def _check_origin(self, headers: Headers) -> None:
        """Pages of other sites may not change anything here through somebody's browser, unless they are listed."""
        origin = headers.get("origin")
        if origin is None or origin in self._config.cors or "*" in self._config.cors:
            return
        netloc = origin.partition("://")[2]
        own = netloc == headers.get("host") if self._names is None else _host_name(netloc) in self._names
        if not own:
            message = "web pages of this origin may not use the server"
            raise ApiError(403, message, type="permission_error", code="origin_not_allowed")


def check_admin(caller: Caller) -> None:
    """Let only administrators go on. Raises ApiError 403."""
    if not caller.admin:
        message = "this key may not use metrics and administration"
        raise ApiError(403, message, type="permission_error", code="not_admin")


def _names(config: ServerConfig) -> frozenset[str] | None:
    """The names a request may use for this server; None: any."""
    if not config.is_local and not config.hosts:
        return None
    return frozenset(name.strip("[]").lower() for name in (*LOCAL_NAMES, config.host, *config.hosts))


def _host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()

"""Runs the application: sockets, signals, connections, and how it all ends. The only module that imports uvicorn.

SIGTERM and SIGINT let what runs finish, up to a limit, and refuse what is new; the second signal ends what runs.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette

from genai_pipeline.errors import CapacityError, OptionError
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.app import build_admin_app, build_app
from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.connection import Connection
from genai_pipeline.server.lag import LagMeter

LAST_SECONDS: Final = 3  # that cancelled requests have to end
BACKLOG: Final = 1024
WORKERS: Final = 12  # threads that read requests: long texts must not keep short ones waiting
SWITCH_SECONDS: Final = 0.001  # after which a thread lets others have the interpreter; the usual 5 ms add up

Announce = Callable[[str], None]


def serve(config: ServerConfig, announce: Announce | None = None) -> int:
    """Serve until a signal ends it; gives the signal's number. ``announce`` hears the address when it is ready."""
    running = Running(config, announce or _say)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        asyncio.run(running.main())
    except ApiError as error:  # of a package that was to be loaded at the start
        raise CapacityError(error.message, hint="give the server more memory, or serve fewer packages") from error
    return running.ended_by


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Running:
    """A server that runs; ``main`` returns when it has ended, ``stop`` ends it from any thread."""

    def __init__(self, config: ServerConfig, announce: Announce) -> None:
        self._config = config
        self._announce = announce
        self.app = build_app(config)
        self._listeners = [(self.app, bind(config.host, config.port))]
        if config.admin_port is not None:
            self._listeners.append((build_admin_app(self.app), bind(config.host, config.admin_port)))
        self._addresses = tuple(url(listening) for _, listening in self._listeners)
        self._servers = [_Server(_settings(app, config)) for app, _ in self._listeners]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping, self._hurrying = asyncio.Event(), asyncio.Event()
        self.ended_by = 0

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens: the interfaces, and perhaps metrics and administration."""
        return self._addresses

    def stop(self, by: int = 0) -> None:
        """Let what runs finish, then end; the second time end what runs."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        again = self._stopping.is_set()
        self.ended_by = by
        loop.call_soon_threadsafe(self._hurrying.set if again else self._stopping.set)

    async def main(self) -> None:
        """Serve. Raises the error that keeps a package from being loaded at the start."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(WORKERS, thread_name_prefix="server"))
        meter = asyncio.create_task(LagMeter(self.app.state.metrics.lagged).run())
        ending = asyncio.create_task(self._end())
        serving = asyncio.gather(
            *(server.serve([listening]) for server, (_, listening) in zip(self._servers, self._listeners, strict=True))
        )
        try:
            with _signals(self.stop):
                await self._prepare(serving)
                await serving
        finally:
            self._exit()
            for task in (ending, meter):
                task.cancel()
            await asyncio.gather(serving, ending, meter, return_exceptions=True)
            await self.app.state.host.close()

    async def _prepare(self, serving: asyncio.Future[Any]) -> None:
        """Load what is loaded at the start, and say so."""
        preparing = asyncio.create_task(self.app.state.host.prepare())
        await asyncio.wait((preparing, serving), return_when=asyncio.FIRST_COMPLETED)
        if not preparing.done():
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            return
        preparing.result()
        says = ("listening on", "metrics and administration on")
        for what, address in zip(says, self._addresses, strict=False):
            self._announce(f"{what} {address}")

    async def _end(self) -> None:
        await self._stopping.wait()
        draining = asyncio.create_task(self.app.state.gate.drain(self._config.drain_seconds))
        hurrying = asyncio.create_task(self._hurrying.wait())
        await asyncio.wait((draining, hurrying), return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not (draining.done() and draining.result()):
            draining.cancel()
            await self.app.state.host.close()  # what still runs ends with an error that its client hears of
        self._exit()

    def _exit(self) -> None:
        for server in self._servers:
            server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn without its own idea of signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to ``Running``."""
        yield


def _settings(app: Starlette, config: ServerConfig) -> uvicorn.Config:
    limits = config.limits
    return uvicorn.Config(
        app,
        http=type("LimitedConnection", (Connection,), {"limits": limits}),
        ws="none",
        lifespan="off",  # ``main`` closes what is loaded
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=limits.header_bytes,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=LAST_SECONDS,
        backlog=BACKLOG,
    )


@contextmanager
def _signals(stop: Callable[[int], None]) -> Iterator[None]:
    """Hear signals, where the main thread runs the server."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heard(number: int, frame: FrameType | None) -> None:
        stop(number)

    before = {number: signal.signal(number, heard) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OptionError when it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "choose another port, or 0 for a free one"
        raise OptionError(f"cannot listen on {host} port {port}: {reason}", param="port", hint=hint) from error


def url(listening: socket.socket) -> str:
    """The address of a socket as a URL."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

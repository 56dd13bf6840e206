"""A live server on a free loopback port, in a thread of the test's process; closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.live import LiveServer
from genai_pipeline.testing import TinyPackage, write_package

Live = Callable[..., str]
SMALL = 32 << 20  # bytes of state for a tiny package


@pytest.fixture
def serving() -> Iterator[Callable[..., LiveServer]]:
    """``serving(package, ..., load={...}, **config)``: the server as an object; ``live`` gives its address alone."""
    with ExitStack() as servers:

        def start(*packages: Any, load: dict[str, Any] | None = None, **config: Any) -> LiveServer:
            served = [getattr(package, "path", package) for package in packages]
            settings = {"port": 0, "drain_seconds": 0, **config}
            made = ServerConfig.of(served, load={"memory": SMALL, **(load or {})}, **settings)
            return servers.enter_context(LiveServer(made))

        yield start


@pytest.fixture
def live(serving: Callable[..., LiveServer]) -> Live:
    """``live(package, ..., load={...}, **config)``: the address of a server of these packages."""
    return lambda *packages, **config: serving(*packages, **config).url


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., TinyPackage]:
    """``tiny(kind="kv", name=..., **options)``: a closed-form package on disk."""
    made = 0

    def write(kind: str = "kv", **options: Any) -> TinyPackage:
        nonlocal made
        made += 1
        return write_package(tmp_path / f"package{made}", kind, **options)

    return write


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """A client that waits long enough for two shared cores."""
    with httpx.Client(timeout=60) as client:
        yield client

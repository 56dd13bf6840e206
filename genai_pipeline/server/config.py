"""How a server is set up: packages, addresses, keys, limits; frozen and checked once."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from genai_pipeline.config import LoadOptions
from genai_pipeline.errors import OptionError
from genai_pipeline.kv.budget import machine_memory, parse_memory
from genai_pipeline.option_values import package_path
from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.limits import NO_LIMITS, KeyLimits, Limits
from genai_pipeline.server.media_urls import MediaRules

DEFAULT_PORT: Final = 8000
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")

Preload = Literal["first", "all", "none"]
Metrics = Literal["on", "off"]
LogFormat = Literal["json", "text"]


@dataclass(frozen=True, slots=True)
class Served:
    """One package of a server: the name clients use, where it is, and how it is loaded."""

    name: str
    package: str
    precision: str | None = None
    load: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(package: Any, load: Mapping[str, Any] | None = None, *, precision: str | None = None) -> Served:
        """A package under its own name, or under the one in ``NAME=PACKAGE``. Raises OptionError or PackageError."""
        text = package_path(package)
        name, equals, path = text.partition("=")
        if not (equals and name and path) or "/" in name or Path(text).exists():
            name, path = own_name(text, precision), text
        LoadOptions.of(**(load or {}))
        return Served(name, path, precision, dict(load or {}))


def own_name(package: str, precision: str | None = None) -> str:
    """The name a package has itself: the known one it was asked for by, or what its metadata says."""
    from genai_pipeline.importers.pull import metadata_of
    from genai_pipeline.importers.recipes import known_names
    from genai_pipeline.metadata.load import load_package

    if package in known_names():
        return package
    spec, problems = load_package(metadata_of(package, precision))
    if spec is None:
        from genai_pipeline.errors import PackageInvalidError

        first = next(problem for problem in problems if problem.severity == "error")
        message = f"{package} cannot be served: {first.message}"
        raise PackageInvalidError(message, tuple(problems), hint=f"genai-pipeline validate {package}")
    return spec.name


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything a server needs to know.

    ``memory`` bounds weights and state of all loaded packages together; None: what the machine lets them have.
    ``admin_port`` gives metrics and administration a port of their own on the same address; ``metrics`` and ``admin``
    switch them off. ``hosts`` are names that requests may address this server by, besides its own address.
    """

    packages: tuple[Served, ...]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    admin_port: int | None = None
    metrics: bool = True
    admin: bool = True
    keys: tuple[ApiKey, ...] = ()
    open_to_all: bool = False
    anonymous: KeyLimits = NO_LIMITS
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    memory: str | int | float | None = None
    preload: Preload = "first"
    warm_up: bool = True
    drain_seconds: float = 30.0
    log_format: LogFormat = "json"
    media: MediaRules = field(default_factory=MediaRules)

    @staticmethod
    def of(packages: Iterable[Any], *, load: Mapping[str, Any] | None = None, **fields: Any) -> ServerConfig:
        """A checked configuration; ``packages`` are Served or what ``Served.of`` takes. Raises OptionError."""
        served = tuple(given if isinstance(given, Served) else Served.of(given, load) for given in packages)
        return checked(ServerConfig(served, **fields))

    @property
    def memory_bytes(self) -> int | None:
        """The bound of all packages in bytes."""
        return None if self.memory is None else parse_memory(self.memory, machine_memory())

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address or name is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def checked(config: ServerConfig) -> ServerConfig:
    """The same configuration. Raises OptionError for what cannot be or should not be."""
    if not config.packages:
        raise OptionError("no package to serve", param="packages", hint="name at least one folder or known name")
    names = [served.name for served in config.packages]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        hint = "give one of them another name: NAME=PACKAGE"
        raise OptionError(f"two packages are called '{twice[0]}'", param="packages", hint=hint)
    for param, port in (("port", config.port), ("admin_port", config.admin_port)):
        if port is not None and not 0 <= port <= 65535:
            raise OptionError(f"{param} must be between 0 and 65535, not {port}", param=param)
    if config.port == config.admin_port != 0:
        raise OptionError("admin_port is the port itself", param="admin_port", hint="give another one, or leave it out")
    if not (config.is_local or config.keys or config.open_to_all):
        raise OptionError(
            f"on {config.host} anybody in the network could use this server: no API keys are configured",
            param="host",
            hint="configure keys, or say open_to_all if that is meant",
        )
    ids = [key.id for key in config.keys]
    if len(set(ids)) < len(ids):
        raise OptionError("two API keys have one name", param="keys")
    _ = config.memory_bytes
    return config


def with_port(config: ServerConfig, port: int) -> ServerConfig:
    """The same configuration on the port that was found free."""
    return replace(config, port=port)

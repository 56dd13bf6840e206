"""Makes the configuration of a server from a file, the command's options and the environment; options win."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from genai_pipeline.config import environment_options
from genai_pipeline.errors import OptionError
from genai_pipeline.server.config import Served, ServerConfig, checked
from genai_pipeline.server.config_file import read_config
from genai_pipeline.server.keys import environment_keys, read_keys
from genai_pipeline.server.limits import Limits

_SAME: Final = (
    "host",
    "port",
    "admin_port",
    "metrics",
    "admin",
    "open_to_all",
    "preload",
    "warm_up",
    "drain_seconds",
    "log_format",
)


def from_command(packages: Iterable[str], loading: Mapping[str, Any], given: Mapping[str, Any]) -> ServerConfig:
    """The configuration that the command's options mean. Raises OptionError, PackageError or ConfigInvalidError."""
    load = {**environment_options(os.environ, loading), **loading}
    precision = load.pop("precision", None)
    file = given.get("config")
    base = {} if file is None else read_config(file, load)
    fields = {**base, **{name: given[name] for name in _SAME if name in given}}
    for name in ("cors", "hosts"):
        if name in given:
            fields[name] = (*fields.get(name, ()), *given[name])
    if "models_memory" in given:
        fields["memory"] = given["models_memory"]
    keys = [*fields.pop("keys", ()), *environment_keys(os.environ)]
    if "api_key_file" in given:
        keys += read_keys(given["api_key_file"])
    named = [Served.of(package, load, precision=precision) for package in packages]
    config = ServerConfig.of([*named, *fields.pop("packages", ())], keys=tuple(keys), **fields)
    return checked(replace(config, limits=_limits(config, given)))


def _limits(config: ServerConfig, given: Mapping[str, Any]) -> Limits:
    changed = {"requests": given.get("max_requests"), "request_seconds": given.get("request_seconds")}
    for name, value in changed.items():
        if value is not None and value <= 0:
            raise OptionError(f"{name} must be above 0, not {value}", param=name)
    return replace(config.limits, **{name: value for name, value in changed.items() if value is not None})

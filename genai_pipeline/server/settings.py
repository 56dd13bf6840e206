"""Makes the configuration of a server from a file, the command's options and the environment; options win."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.server.callers import MAX_KEY, ApiKey
from genai_pipeline.server.config import ServerConfig, checked
from genai_pipeline.server.config_file import read_config

KEYS_VARIABLE: Final = "GENAI_PIPELINE_API_KEYS"
SHORTEST_KEY: Final = 8

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
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def from_command(packages: Iterable[str], loading: Mapping[str, Any], given: Mapping[str, Any]) -> ServerConfig:
    """The configuration that the command's options mean. Raises OptionError, PackageError or ConfigInvalidError."""
    load = dict(loading)
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
    named = [_served(package, load, precision) for package in packages]
    config = ServerConfig.of([*named, *fields.pop("packages", ())], keys=tuple(keys), **fields)
    return checked(replace(config, limits=_limits(config, given)))


def _served(package: str, load: Mapping[str, Any], precision: str | None) -> Any:
    from genai_pipeline.server.config import Served

    return Served.of(package, load, precision=precision)


def _limits(config: ServerConfig, given: Mapping[str, Any]) -> Any:
    changed = {"requests": given.get("max_requests"), "request_seconds": given.get("request_seconds")}
    for name, value in changed.items():
        if value is not None and value <= 0:
            raise OptionError(f"{name} must be above 0, not {value}", param=name)
    return replace(config.limits, **{name: value for name, value in changed.items() if value is not None})


def environment_keys(environment: Mapping[str, str]) -> list[ApiKey]:
    """The keys in the environment, separated by commas or white space."""
    secrets = environment.get(KEYS_VARIABLE, "").replace(",", " ").split()
    return [_key(f"env{index}", secret, KEYS_VARIABLE) for index, secret in enumerate(secrets, 1)]


def read_keys(path: Path) -> list[ApiKey]:
    """The keys of a file: on each line a secret, perhaps after its name; empty lines and # comments do not count."""
    return [_key(name, secret, str(path)) for name, secret in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise OptionError(f"the key file {path} cannot be read: {reason}", param="api_key_file") from error
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) > 2:
            raise OptionError(f"{path}, line {number}: more than a name and a secret", param="api_key_file")
        if words:
            yield (words[0] if len(words) == 2 else f"line{number}"), words[-1]


def _key(name: str, secret: str, source: str) -> ApiKey:
    if not _NAME.fullmatch(name):
        raise OptionError(f"a key in {source} has a name of other characters than A-Z a-z 0-9 . _ -", param="keys")
    if not SHORTEST_KEY <= len(secret) <= MAX_KEY:
        raise OptionError(
            f"the key '{name}' in {source} must have {SHORTEST_KEY} to {MAX_KEY} characters", param="keys"
        )
    return ApiKey.of(name, secret)

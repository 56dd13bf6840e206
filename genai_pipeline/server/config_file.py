"""Reads the configuration file of a server: YAML, checked by ``schemas/server_config.schema.json``.

Paths in it are relative to the file. Secrets are not in it: it says where they are, or has their SHA-256.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from genai_pipeline.errors import ConfigInvalidError, OptionError
from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.schema import check_against
from genai_pipeline.metadata.yaml_reader import read
from genai_pipeline.problems import Problem, sort_problems
from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.config import Served
from genai_pipeline.server.config_checks import check_values
from genai_pipeline.server.keys import key_of
from genai_pipeline.server.limits import KeyLimits, Limits
from genai_pipeline.server.media_urls import MediaRules

SCHEMA_FILE: Final = "server_config.schema.json"


def read_config(path: Path, load: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of ServerConfig; ``load`` are load options of the command, which win over those in the file.

    Raises ConfigInvalidError with every problem of the file, OptionError or PackageError.
    """
    root, found = read(path)
    folder = path.resolve().parent
    errors = _errors(found, root, load, folder)
    if root is None or errors:
        raise _invalid(path, errors)
    fields: dict[str, Any] = root.plain()
    common = {**fields.pop("load", {}), **load}
    for name, build in _BUILDERS.items():
        if name in fields:
            fields[name] = build(fields[name])
    if "packages" in fields:
        fields["packages"] = [_package(entry, common, load, folder) for entry in fields["packages"]]
    if "keys" in fields:
        fields["keys"] = [_key(entry, folder) for entry in fields["keys"]]
    return fields


def _errors(found: Iterable[Problem], root: Node | None, load: Mapping[str, Any], folder: Path) -> list[Problem]:
    """All errors of a file: of reading it, of its shape, and of the values that have a right shape."""
    problems = list(found)
    if root is not None:
        problems += check_against(root, SCHEMA_FILE)
        wrong = [problem.at.path for problem in problems]

        def fits(node: Node) -> bool:
            """Whether nothing is wrong with a value, nor in it."""
            inside = (f"{node.at.path}.", f"{node.at.path}[")
            return not any(path == node.at.path or path.startswith(inside) for path in wrong)

        problems += check_values(root, load, fits, partial(_key, folder=folder))
    return [problem for problem in sort_problems(problems) if problem.severity == "error"]


def _invalid(path: Path, errors: list[Problem]) -> ConfigInvalidError:
    first = errors[0]
    message = f"{path} has {len(errors)} problem{'s' if len(errors) > 1 else ''}; first: {first.message}"
    return ConfigInvalidError(message, tuple(errors), hint="docs/server.md describes the file")


def _media(given: Mapping[str, Any]) -> MediaRules:
    return MediaRules(**{**given, "hosts": tuple(given.get("hosts", ()))})


_BUILDERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "limits": lambda given: Limits(**given),
    "anonymous": lambda given: KeyLimits(**given),
    "media": _media,
    "cors": tuple,
    "hosts": tuple,
}


def _package(entry: Mapping[str, Any], common: Mapping[str, Any], load: Mapping[str, Any], folder: Path) -> Served:
    package = _located(entry["package"], folder)
    named = f"{entry['name']}={package}" if "name" in entry else package
    return Served.of(named, {**common, **entry.get("load", {}), **load}, precision=entry.get("precision"))


def _located(package: str, folder: Path) -> str:
    """A package by path as seen from the file; a known name stays what it is."""
    path = folder / Path(package).expanduser()
    return str(path) if path.exists() else package


def _key(entry: Mapping[str, Any], folder: Path) -> ApiKey:
    limits = KeyLimits(**entry.get("limits", {}))
    admin = entry.get("admin", False)
    if "sha256" in entry:
        return ApiKey(entry["id"], bytes.fromhex(entry["sha256"]), limits, admin)
    return key_of(entry["id"], _secret(entry, folder), "the configuration", limits, admin=admin)


def _secret(entry: Mapping[str, Any], folder: Path) -> str:
    """A secret from where the file says it is. Raises OptionError."""
    if "secret_env" in entry:
        secret = os.environ.get(entry["secret_env"], "").strip()
        if not secret:
            message = f"the key '{entry['id']}' is to come from {entry['secret_env']}, which is not set"
            raise OptionError(message, param="keys", hint="set it in the environment of the server")
        return secret
    try:
        return (folder / Path(entry["secret_file"]).expanduser()).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise OptionError(f"the secret of the key '{entry['id']}' cannot be read: {reason}", param="keys") from error

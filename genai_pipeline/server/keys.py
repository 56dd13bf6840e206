"""API keys from where operators keep them: a file, the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from genai_pipeline.errors import OptionError
from genai_pipeline.server.callers import MAX_KEY, ApiKey
from genai_pipeline.server.limits import NO_LIMITS, KeyLimits

KEYS_VARIABLE: Final = "GENAI_PIPELINE_API_KEYS"
SHORTEST_KEY: Final = 8

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def environment_keys(environment: Mapping[str, str]) -> list[ApiKey]:
    """The keys in the environment, separated by commas or white space; they are called env1, env2, ..."""
    secrets = environment.get(KEYS_VARIABLE, "").replace(",", " ").split()
    return [key_of(f"env{index}", secret, KEYS_VARIABLE) for index, secret in enumerate(secrets, 1)]


def read_keys(path: Path) -> list[ApiKey]:
    """The keys of a file: on each line a secret, perhaps after its name; empty lines and # comments do not count.

    Raises OptionError.
    """
    return [key_of(name, secret, str(path)) for name, secret in _lines(path)]


def key_of(id: str, secret: str, source: str, limits: KeyLimits = NO_LIMITS, *, admin: bool = False) -> ApiKey:
    """A key, checked; messages name its ``source`` and never its secret. Raises OptionError."""
    if not _NAME.fullmatch(id):
        message = f"a key in {source} has a name that is not made of letters, digits and . _ -"
        raise OptionError(message, param="keys")
    if not SHORTEST_KEY <= len(secret) <= MAX_KEY or not secret.isascii() or not secret.isprintable() or " " in secret:
        message = f"the key '{id}' in {source} must be {SHORTEST_KEY} to {MAX_KEY} ASCII characters without spaces"
        raise OptionError(message, param="keys")
    return ApiKey.of(id, secret, limits, admin=admin)


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

"""What users write for a provider.

``cuda``, ``cuda|device_id=1``, ``plugin:/path/to/library|key=value``, ``plugin:DISTRIBUTION``, or a list of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genai_pipeline.errors import OptionError

PLUGIN: Final = "plugin:"
_FORMS: Final = "write cuda, cuda|device_id=1, plugin:/path/to/library or plugin:DISTRIBUTION|key=value"


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One provider as asked: its name, or the library or distribution of a plugin, and options in their order."""

    name: str
    plugin: bool = False
    options: tuple[tuple[str, str], ...] = ()


def parse_provider(text: str) -> ProviderSpec:
    """One provider with its options. Raises OptionError naming the part that is malformed."""
    name, *parts = text.split("|")
    plugin = name.strip().startswith(PLUGIN)
    name = name.strip().removeprefix(PLUGIN).strip()
    if not name:
        what = "a plugin without a library or distribution" if plugin else "no name"
        raise OptionError(f"provider '{text}' has {what}", param="providers", hint=_FORMS)
    options: dict[str, str] = {}
    for part in parts:
        key, value = _option(text, part)
        if key in options:
            raise OptionError(f"provider '{text}' gives the option '{key}' twice", param="providers")
        options[key] = value
    return ProviderSpec(name, plugin, tuple(options.items()))


def split_providers(given: Sequence[str]) -> tuple[str, ...]:
    """The entries of a command line's values: each may be a list with commas. Raises OptionError for an empty entry.

    A comma always separates, so that no value of an option can hold one on the command line.
    """
    entries = tuple(entry.strip() for text in given for entry in text.split(","))
    if not all(entries):
        raise OptionError(f"an empty entry in the providers '{','.join(given)}'", param="providers", hint=_FORMS)
    return entries


def _option(text: str, part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise OptionError(
            f"provider '{text}': the option '{part}' is not of the form key=value", param="providers", hint=_FORMS
        )
    return key.strip(), value.strip()

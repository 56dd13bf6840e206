"""What users write for a provider, and for which components.

``cuda``, ``cuda|device_id=1``, ``plugin:/path/to/library.so|key=value``, ``plugin:DISTRIBUTION``, or a list of these;
``COMPONENT=cuda,cpu`` is for one component, ``*=cpu`` for all that are not named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.session_keys import short_provider
from genai_pipeline.problems import shown

PLUGIN: Final = "plugin:"
EVERYWHERE: Final = "*"  # stands for every component that is not named
_FORMS: Final = "write cuda, cuda|device_id=1, plugin:/path/to/library.so or plugin:DISTRIBUTION|key=value"
_FOR_COMPONENT: Final = re.compile(r"(\*|[A-Za-z_]\w*)\s*=\s*(.*)", re.DOTALL)
_LIBRARY: Final = re.compile(r"[/\\]|\.(so|dll|dylib)(\.\d+)*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """One provider as asked: its name, or the library or distribution of a plugin, and options in their order."""

    name: str
    plugin: bool = False
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_library(self) -> bool:
        """Whether a plugin is named by the path of its library, and not by its distribution."""
        return self.plugin and _LIBRARY.search(self.name) is not None


@dataclass(frozen=True, slots=True)
class AskedProviders:
    """Providers by component as the caller asks for them, the first choice first; ``*``: for the components not named.

    A component for which nothing is asked has what the package says.
    """

    lists: Mapping[str, tuple[str, ...]]

    def of(self, component: str) -> tuple[str, ...]:
        """What is asked for a component; nothing: what the package says counts."""
        return self.lists.get(component, self.lists.get(EVERYWHERE, ()))

    @property
    def components(self) -> tuple[str, ...]:
        """The components that are named."""
        return tuple(name for name in self.lists if name != EVERYWHERE)

    def everywhere(self) -> AskedProviders | None:
        """What is asked for no component in particular, which counts for another package too."""
        return AskedProviders({EVERYWHERE: self.lists[EVERYWHERE]}) if EVERYWHERE in self.lists else None

    def __str__(self) -> str:
        """As the command takes it."""
        named = (f"{name}={','.join(entries)}" for name, entries in self.lists.items() if name != EVERYWHERE)
        return ",".join([*self.lists.get(EVERYWHERE, ()), *named])


def label_of(text: str) -> str:
    """What names a provider, without its options: ``cuda``, ``plugin:DISTRIBUTION``. It need not be well-formed."""
    name = text.partition("|")[0].strip()
    return f"{PLUGIN}{name.removeprefix(PLUGIN).strip()}" if name.startswith(PLUGIN) else short_provider(name)


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


def read_providers(name: str, given: Any) -> AskedProviders:
    """The providers that an option asks for: a text, a list of them, or texts and lists by component.

    A text may be a list with commas; ``COMPONENT=`` before an entry says whom it and those behind it in the text are
    for. A comma always separates, so that no value of an option can hold one. Raises OptionError.
    """
    if isinstance(given, AskedProviders):
        return given
    by_component = given if isinstance(given, Mapping) else {EVERYWHERE: given}
    if not by_component:
        raise OptionError(f"{name} names no component", param=name, hint="leave it out, or write {'*': 'cpu'}")
    lists: dict[str, list[str]] = {}
    for component, texts in by_component.items():
        if not isinstance(component, str):
            raise OptionError(f"{name} has {shown(component)} in place of a component's name", param=name)
        for owner, entry in _entries(name, component, texts):
            parse_provider(entry)
            lists.setdefault(owner, []).append(entry)
    return AskedProviders({owner: tuple(dict.fromkeys(entries)) for owner, entries in lists.items()})


def _entries(name: str, component: str, given: Any) -> Iterator[tuple[str, str]]:
    """(component, provider) for each entry of a text or a list."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise OptionError(f"{name} must be a name or a list of them, not {shown(given)}", param=name)
    if not texts:
        raise OptionError(f"{name} is an empty list", param=name, hint="leave it out, or name 'cpu'")
    for text in texts:
        owner = component
        for part in text.split(","):
            named = _FOR_COMPONENT.match(part.strip())
            if named is not None:
                owner, part = named.groups()
            if not part.strip():
                raise OptionError(f"an empty entry in the providers '{text}'", param=name, hint=_FORMS)
            yield owner, part.strip()


def _option(text: str, part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise OptionError(
            f"provider '{text}': the option '{part}' is not of the form key=value", param="providers", hint=_FORMS
        )
    return key.strip(), value.strip()

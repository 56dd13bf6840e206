"""A value of a JSON config file with its place, read with its type checked: errors name file, key path and value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from genai_pipeline.errors import ImportModelError
from genai_pipeline.problems import nearest, one_of

_SHOWN = 60  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """One value of a JSON file; ``path`` is its key path, e.g. ``model.decoder.inputs`` ("": the whole file)."""

    file: str
    path: str
    value: Any

    def __contains__(self, key: str) -> bool:
        """Whether the mapping has the key; ``null`` counts as absent."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a mapping; none for other values."""
        return tuple(self.value) if isinstance(self.value, dict) else ()

    def at(self, key: str) -> str:
        """The key path of a member."""
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str) -> ConfigNode | None:
        """A member of a mapping; None when it is absent or ``null``."""
        return ConfigNode(self.file, self.at(key), self.value[key]) if key in self else None

    def need(self, key: str) -> ConfigNode:
        """A member that must be there. Raises ImportModelError naming the nearest key that is."""
        found = self.get(key)
        if found is None:
            hint = nearest(key, self.keys) or (f"there are {one_of(self.keys)}" if self.keys else "")
            raise ImportModelError(f"{self.file}: the key '{self.at(key)}' is missing", hint=hint)
        return found

    def mapping(self, key: str) -> ConfigNode:
        """A member that is a mapping; an empty one when it is absent."""
        found = self.get(key)
        if found is None:
            return ConfigNode(self.file, self.at(key), {})
        return found.checked(isinstance(found.value, dict), "a mapping")

    def items(self) -> Iterator[ConfigNode]:
        """The members of a list or mapping, in order."""
        if isinstance(self.value, list):
            yield from (ConfigNode(self.file, f"{self.path}[{i}]", item) for i, item in enumerate(self.value))
        for key in self.keys:
            yield ConfigNode(self.file, self.at(key), self.value[key])

    def leaves(self) -> Iterator[ConfigNode]:
        """Every value below that is no mapping (lists are one value), and empty mappings."""
        if not isinstance(self.value, dict) or not self.value:
            yield self
        else:
            for item in self.items():
                yield from item.leaves()

    def text(self, key: str, default: str | None = None) -> str:
        """A string that is not empty; ``default`` None: it must be there."""
        if default is not None and key not in self:
            return default
        found = self.need(key)
        value: str = found.checked(isinstance(found.value, str) and found.value != "", "a string, not empty").value
        return value

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """An integer of at least ``least``; ``default`` None: it must be there."""
        if default is not None and key not in self:
            return default
        found = self.need(key)
        fits = isinstance(found.value, int) and not isinstance(found.value, bool) and found.value >= least
        value: int = found.checked(fits, f"an integer of at least {least}").value
        return value

    def number(self, key: str) -> float:
        """A number that must be there."""
        found = self.need(key)
        fits = isinstance(found.value, int | float) and not isinstance(found.value, bool)
        value: float = found.checked(fits, "a number").value
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """true or false."""
        found = self.get(key)
        return default if found is None else bool(found.checked(isinstance(found.value, bool), "true or false").value)

    def integers(self, key: str) -> tuple[int, ...]:
        """An integer or a list of them, as a tuple; empty when it is absent."""
        found = self.get(key)
        if found is None:
            return ()
        values = found.value if isinstance(found.value, list) else [found.value]
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in values)
        found.checked(whole, "an integer or a list of integers")
        return tuple(values)

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of the allowed strings."""
        value = self.text(key, default)
        if value not in allowed:
            message = f"{self.file}: {self.at(key)} is '{value}'; allowed: {one_of(allowed)}"
            raise ImportModelError(message, hint=nearest(value, allowed))
        return value

    def checked(self, fits: bool, allowed: str) -> ConfigNode:
        """This node, if ``fits``. Raises ImportModelError saying what is there and what is allowed."""
        if fits:
            return self
        where = f"{self.file}: {self.path}" if self.path else self.file
        raise ImportModelError(f"{where} is {self.shown}; allowed: {allowed}")

    @property
    def shown(self) -> str:
        """The value as messages show it."""
        text = json.dumps(self.value, ensure_ascii=True)
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

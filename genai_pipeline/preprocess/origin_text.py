"""Text that knows who wrote each of its characters: the template or the request.

A chat template mixes its own control tokens with text typed by users. ``OriginText`` is a ``str`` that carries one
byte of origin per character through the operations templates use (``+``, ``~``, slicing, ``strip``, ``split``,
``replace``, ``join``, ``%`` ...), so that the finished prompt can be cut at the control tokens *written by the
template* and nowhere else. It compares, hashes and prints as the plain text, hence templates behave as always.

The scheme fails closed: an operation that is not tracked gives a plain ``str``, whose characters are of unknown
origin, and text of unknown origin is not trusted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from genai_pipeline.preprocess.render_limits import check_size

UNKNOWN = 0
TEMPLATE = 1
REQUEST = 2

_FORMAT = re.compile(r"%(?:\((?P<key>[^)]*)\))?(?P<form>[-+ #0]*\d*(?:\.\d+)?(?P<kind>[a-zA-Z%]))")


class OriginText(str):
    """A string with the origin of every character; immutable like any string."""

    __slots__ = ("_origin",)
    _origin: bytes

    @classmethod
    def of(cls, text: str, origin: int) -> OriginText:
        """The text with one origin for all of it."""
        return cls.mixed(text, bytes((origin,)) * len(text))

    @classmethod
    def mixed(cls, text: str, origin: bytes) -> OriginText:
        """The text with an origin per character."""
        made = cls(text)
        made._origin = origin
        return made

    # str(x) must keep the origin, which is why this returns itself and not a plain copy.
    def __str__(self) -> str:
        return self

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return OriginText.mixed(str.__add__(self, other), origin_of(self) + origin_of(other))

    def __radd__(self, other: Any) -> Any:
        if not isinstance(other, str) or hasattr(other, "__html__"):
            return NotImplemented
        return OriginText.mixed(str.__add__(other, self), origin_of(other) + origin_of(self))

    def __mul__(self, count: SupportsIndex) -> OriginText:
        return OriginText.mixed(str.__mul__(self, count), origin_of(self) * int(count))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> Any:
        return _percent(self, values)

    def __getitem__(self, key: SupportsIndex | slice) -> OriginText:
        text = str.__getitem__(self, key)
        span = key if isinstance(key, slice) else slice(key, (int(key) + 1) or None)
        return OriginText.mixed(text, origin_of(self)[span])

    def __iter__(self) -> Iterator[str]:
        return (self[index] for index in range(len(self)))

    def strip(self, chars: str | None = None, /) -> OriginText:
        """As ``str.strip``, origins kept."""
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> OriginText:
        """As ``str.lstrip``, origins kept."""
        return self[len(self) - len(str.lstrip(self, chars)) :]

    def rstrip(self, chars: str | None = None, /) -> OriginText:
        """As ``str.rstrip``, origins kept."""
        return self[: len(str.rstrip(self, chars))]

    def removeprefix(self, prefix: str, /) -> OriginText:
        """As ``str.removeprefix``, origins kept."""
        return self[len(prefix) :] if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> OriginText:
        """As ``str.removesuffix``, origins kept."""
        return self[: len(self) - len(suffix)] if suffix and self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As ``str.split``, origins kept."""
        return self._located(str.split(self, sep, maxsplit), len(sep or ""))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As ``str.rsplit``, origins kept."""
        return self._located(str.rsplit(self, sep, maxsplit), len(sep or ""))

    def splitlines(self, keepends: bool = False) -> list[str]:
        """As ``str.splitlines``, origins kept."""
        whole = self._located(str.splitlines(self, True), 0)
        return [line[: len(text)] for line, text in zip(whole, str.splitlines(self, keepends), strict=True)]

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        """As ``str.partition``, origins kept."""
        head, middle, _ = str.partition(self, sep)
        cut = len(head) + len(middle)
        return self[: len(head)], self[len(head) : cut], self[cut:]

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        """As ``str.rpartition``, origins kept."""
        head, middle, _ = str.rpartition(self, sep)
        cut = len(head) + len(middle)
        return self[: len(head)], self[len(head) : cut], self[cut:]

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        """As ``str.replace``, origins kept (of ``new`` where it was put in)."""
        if not old:
            check_size((len(self) + 1) * (len(new) + 1))
            return str.replace(self, old, new, count)
        parts = self.split(old, count)
        return joined_with(new, parts)

    def join(self, parts: Iterable[str], /) -> str:
        """As ``str.join``, origins kept."""
        return joined_with(self, parts)

    def lower(self) -> str:
        """As ``str.lower``, origins kept."""
        return self._same_length(str.lower)

    def upper(self) -> str:
        """As ``str.upper``, origins kept."""
        return self._same_length(str.upper)

    def title(self) -> str:
        """As ``str.title``, origins kept."""
        return self._same_length(str.title)

    def capitalize(self) -> str:
        """As ``str.capitalize``, origins kept."""
        return self._same_length(str.capitalize)

    def _same_length(self, change: Callable[[str], str]) -> str:
        text = change(self)
        return OriginText.mixed(text, origin_of(self)) if len(text) == len(self) else text

    def _located(self, parts: list[str], gap: int) -> list[str]:
        """The parts, which follow each other in this text, with the origins of where they were found."""
        found: list[str] = []
        cursor = 0
        for part in parts:
            start = str.find(self, part, cursor)
            found.append(self[start : start + len(part)])
            cursor = start + len(part) + gap
        return found


def origin_of(text: str) -> bytes:
    """One origin byte per character; unknown for a plain string."""
    origin = getattr(text, "_origin", None)
    return origin if isinstance(origin, bytes) else bytes(len(text))


def tracked(text: str) -> OriginText:
    """The text itself if it is tracked, else a copy of unknown origin."""
    return text if isinstance(text, OriginText) else OriginText.mixed(text, bytes(len(text)))


def joined(parts: Iterable[str]) -> OriginText:
    """The parts one after the other, origins kept."""
    pieces = list(parts)
    return OriginText.mixed("".join(pieces), b"".join(map(origin_of, pieces)))


def joined_with(separator: str, parts: Iterable[str]) -> OriginText:
    """The parts with the separator between them, origins kept."""
    pieces = list(parts)
    check_size(sum(map(len, pieces)) + len(separator) * len(pieces))
    return OriginText.mixed(str.join(separator, pieces), origin_of(separator).join(map(origin_of, pieces)))


def mark(value: Any, origin: int) -> Any:
    """A copy of JSON-like data whose strings, keys too, all have the given origin."""
    if isinstance(value, str):
        return OriginText.of(str.__str__(value), origin)
    if isinstance(value, Mapping):
        return {mark(key, origin): mark(item, origin) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [mark(item, origin) for item in value]
    return value


def characters(value: Any) -> set[str]:
    """Every character that occurs in the strings of JSON-like data."""
    if isinstance(value, str):
        return set(str.__str__(value))
    if isinstance(value, Mapping):
        return characters(list(value)) | characters(list(value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*(characters(item) for item in value)) if value else set()
    return set()


def _percent(template: OriginText, values: Any) -> str:
    """``template % values``: literal text and plain ``%s`` arguments keep their origins, the rest is of unknown one."""
    plain = str.__mod__(template, values)
    arguments = iter(values if isinstance(values, tuple) else (values,))
    pieces: list[str] = []
    cursor = 0
    for spec in _FORMAT.finditer(template):
        pieces.append(template[cursor : spec.start()])
        cursor = spec.end()
        if spec["kind"] == "%":
            pieces.append("%")
            continue
        argument = values[spec["key"]] if spec["key"] is not None else next(arguments, "")
        pieces.append(str(argument) if spec["form"] == "s" else str.__mod__("%" + spec["form"], (argument,)))
    pieces.append(template[cursor:])
    tracked = joined(pieces)
    return tracked if tracked == plain else plain

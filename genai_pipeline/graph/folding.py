"""Names that differ in one number, as one: ``present.0.key``, ``present.1.key`` are ``present.{0-1}.key``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
_NUMBER: Final = re.compile(r"(?<![^./_])\d+(?![^./_])")  # a part of a name by itself


def folded(names: Iterable[str]) -> list[str]:
    """The names in order, those that differ in one number only as one where the first of them stands."""
    return [shown for shown, _ in fold(list(names), lambda name: (name,))]


def fold(items: Sequence[Item], texts: Callable[[Item], tuple[str, ...]]) -> Iterator[tuple[str, list[Item]]]:
    """(shown, items): items whose first text is a name and whose other texts are equal but for that name's number.

    ``shown`` is the name of all of them.
    """
    groups: dict[tuple[str, ...], list[tuple[int, Item]]] = {}
    for item in items:
        name, *others = texts(item)
        number = _NUMBER.search(name)
        if number is None:
            groups.setdefault((name, "", *others), []).append((0, item))
        else:
            around = (name[: number.start()], name[number.end() :])
            same = tuple(_same(number[0], text) for text in others)
            groups.setdefault((*around, "number", *same), []).append((int(number[0]), item))
    for (before, after, *_), members in groups.items():
        yield from _group(before, after, members, texts)


def _same(own: str, text: str) -> str:
    """A text with a mark where it has the item's own number."""
    return _NUMBER.sub(lambda found: "{number}" if found[0] == own else found[0], text)


def _group(
    before: str, after: str, members: list[tuple[int, Item]], texts: Callable[[Item], tuple[str, ...]]
) -> Iterator[tuple[str, list[Item]]]:
    numbers = [number for number, _ in members]
    found = [item for _, item in members]
    if len(members) > 1 and len(set(numbers)) == len(numbers) == max(numbers) - min(numbers) + 1:
        yield f"{before}{{{min(numbers)}-{max(numbers)}}}{after}", found
    else:
        yield from ((texts(item)[0], [item]) for item in found)

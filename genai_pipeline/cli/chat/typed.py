"""What was typed, as a message: how it goes on over several lines, and what makes it a command.

A backslash at the end of a line lets the next one belong to it; what stands between two ``\"\"\"`` is taken as it is.
A message that begins with ``/`` is a command, one that begins with ``//`` is said with one slash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BLOCK: Final = '"""'
_GOES_ON: Final = "\\"


@dataclass(frozen=True, slots=True)
class Said:
    """Something to say to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command by its name, without the slash, and what stands behind it."""

    name: str
    argument: str


def is_open(text: str) -> bool:
    """Whether what was typed so far goes on in the next line."""
    begun = text.lstrip()
    if begun.startswith(BLOCK):
        return not _closes(begun)
    return text.endswith(_GOES_ON)


def read_typed(text: str) -> Said | Command | None:
    """What a whole input means; None for nothing at all."""
    begun = text.strip()
    if begun.startswith(BLOCK):
        inner = begun[len(BLOCK) : -len(BLOCK)] if _closes(begun) else begun[len(BLOCK) :]
        return Said(inner.removeprefix("\n").removesuffix("\n")) if inner.strip() else None
    joined = text.replace(f"{_GOES_ON}\n", "\n").removesuffix(_GOES_ON)
    begun = joined.strip()
    if not begun:
        return None
    if begun.startswith("//"):
        return Said(begun[1:])
    if begun.startswith("/"):
        name, *rest = begun[1:].split(maxsplit=1) or [""]
        return Command(name, rest[0] if rest else "")
    return Said(joined)


def _closes(begun: str) -> bool:
    """Whether a text that begins with a block ends it."""
    ended = begun.rstrip()
    return len(ended) >= 2 * len(BLOCK) and ended.endswith(BLOCK)

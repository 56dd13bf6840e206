"""Tags in text that comes in pieces: the first one there, and how much may yet become one."""

from __future__ import annotations

from collections.abc import Sequence


def find_tag(text: str, tags: Sequence[str]) -> tuple[int, str] | None:
    """Where the first tag stands, and which; of several that begin there, the longest."""
    found = [(position, -len(tag), tag) for tag in tags if (position := text.find(tag)) >= 0]
    if not found:
        return None
    position, _, tag = min(found)
    return position, tag


def tag_start(text: str, tags: Sequence[str]) -> int:
    """The index from which on the text may be the beginning of a tag; its length when nothing of it may."""
    return len(text) - max((_overlap(text, tag) for tag in tags), default=0)


def begins_tag(text: str, tags: Sequence[str]) -> bool:
    """Whether the whole text is the beginning of a tag, but not yet one."""
    return any(len(text) < len(tag) and tag.startswith(text) for tag in tags)


def _overlap(text: str, tag: str) -> int:
    """Characters at the end of the text that a tag begins with, short of the whole tag."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0

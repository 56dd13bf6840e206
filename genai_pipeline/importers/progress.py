"""How importers and pulls report how far they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called often with a task in words, the amount done and the whole amount (bytes or items; 0: unknown)."""

    def __call__(self, task: str, done: int, total: int, /) -> None:
        """Report one step."""


def silent(task: str, done: int, total: int, /) -> None:
    """A Progress that nobody watches."""

"""How importers and pulls report how far they are."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called often with what is being done in words, the amount done and the whole amount (0: unknown).

    Reports with the same whole amount belong to one piece of work; its words may change as it goes on.
    """

    def __call__(self, task: str, done: int, total: int, /) -> None:
        """Report one step."""


def silent(task: str, done: int, total: int, /) -> None:
    """A Progress that nobody watches."""

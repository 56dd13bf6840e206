"""Reading text character by character while it is still being written.

A reader is a generator: it is sent one character at a time, and an empty text at the end. So the readers of nested
syntax are plain functions that call each other with ``yield from``, and wait wherever the text happens to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")
Read = Generator[None, str, T]
Emit = Callable[[str], None]

WHITE: Final = " \t\r\n"


class MalformedError(Exception):
    """The text is not what the reader reads; it never leaves this package."""


class Chars:
    """The characters of a text, with one to look ahead; that one, if not taken, is still the text's."""

    __slots__ = ("ahead",)

    def __init__(self) -> None:
        self.ahead: str | None = None

    def peek(self) -> Read[str]:
        """The next character; empty at the end, from then on."""
        if self.ahead is None:
            self.ahead = yield
        return self.ahead

    def take(self) -> Read[str]:
        """The next character, gone past."""
        char = yield from self.peek()
        if char:
            self.ahead = None
        return char

    def skip_white(self) -> Read[str]:
        """Go past white space; gives the character after it, not taken."""
        while True:
            char = yield from self.peek()
            if not char or char not in WHITE:
                return char
            self.ahead = None

    def expect(self, text: str) -> Read[None]:
        """Go past exactly this text. Raises MalformedError."""
        for wanted in text:
            char = yield from self.peek()
            if char != wanted:
                raise MalformedError
            self.ahead = None

    def take_while(self, allowed: str) -> Read[str]:
        """Characters out of a set, as many as there are."""
        taken: list[str] = []
        while True:
            char = yield from self.peek()
            if not char or char not in allowed:
                return "".join(taken)
            self.ahead = None
            taken.append(char)

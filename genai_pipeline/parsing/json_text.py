"""JSON read as it is written: strict (RFC 8259), passed on verbatim character by character."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from genai_pipeline.parsing.chars import Chars, Emit, MalformedError, Read

MAX_DEPTH: Final = 64
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final = ("true", "false", "null")
_ESCAPES: Final = '"\\/bfnrt'
_HEX: Final = "0123456789abcdefABCDEF"


def read_object(chars: Chars, emit: Emit, depth: int = 0) -> Read[None]:
    """An object whose first character comes next. Raises MalformedError."""
    yield from _items(chars, emit, "{}", lambda: _member(chars, emit, depth))


def read_value(chars: Chars, emit: Emit, depth: int = 0) -> Read[None]:
    """Any value; a number or a word is passed on when it is over. Raises MalformedError."""
    if depth > MAX_DEPTH:
        raise MalformedError
    char = yield from chars.peek()
    if char == "{":
        yield from read_object(chars, emit, depth)
    elif char == "[":
        yield from _items(chars, emit, "[]", lambda: read_value(chars, emit, depth + 1))
    elif char == '"':
        yield from read_string(chars, emit)
    elif char and char in "-0123456789":
        number = yield from chars.take_while("+-.eE0123456789")
        _check(_NUMBER.fullmatch(number) is not None)
        emit(number)
    else:
        word = yield from chars.take_while("aeflnrstu")
        _check(word in _WORDS)
        emit(word)


def read_string(chars: Chars, emit: Emit) -> Read[None]:
    """A string with its quotes. Raises MalformedError."""
    yield from chars.expect('"')
    emit('"')
    while True:
        char = yield from chars.take()
        _check(char >= " ")  # the end of the text is less, too
        if char == "\\":
            char += yield from _escape(chars)
        emit(char)
        if char == '"':
            return


def decoded_string(chars: Chars) -> Read[str]:
    """What a string says. Raises MalformedError."""
    pieces: list[str] = []
    yield from read_string(chars, pieces.append)
    text: str = json.loads("".join(pieces))
    return text


def parsed(text: str) -> Any:
    """The value of JSON text. Raises MalformedError."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise MalformedError from error


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _member(chars: Chars, emit: Emit, depth: int) -> Read[None]:
    """A name and its value in an object."""
    yield from read_string(chars, emit)
    yield from _white(chars, emit)
    yield from chars.expect(":")
    emit(":")
    yield from _white(chars, emit)
    yield from read_value(chars, emit, depth + 1)


def _items(chars: Chars, emit: Emit, brackets: str, read_item: Callable[[], Read[None]]) -> Read[None]:
    """Items with commas between them, in a pair of brackets; there may be none."""
    opening, closing = brackets[0], brackets[1]
    yield from chars.expect(opening)
    emit(opening)
    if (yield from _white(chars, emit)) == closing:
        yield from _close(chars, emit)
        return
    while True:
        yield from read_item()
        if (yield from _white(chars, emit)) == closing:
            yield from _close(chars, emit)
            return
        yield from chars.expect(",")
        emit(",")
        yield from _white(chars, emit)


def _escape(chars: Chars) -> Read[str]:
    """What follows a backslash."""
    char = yield from chars.take()
    if char == "u":
        for _ in range(4):
            digit = yield from chars.take()
            _check(bool(digit) and digit in _HEX)
            char += digit
        return char
    _check(bool(char) and char in _ESCAPES)
    return char


def _white(chars: Chars, emit: Emit) -> Read[str]:
    """White space, passed on; gives the character after it, not taken."""
    emit((yield from chars.take_while(" \t\r\n")))
    return (yield from chars.peek())


def _close(chars: Chars, emit: Emit) -> Read[None]:
    emit((yield from chars.take()))


def _check(fine: bool) -> None:
    if not fine:
        raise MalformedError

"""Python literals read as they are written, and given as JSON text: strings, numbers, True, None, lists, dicts, tuples.

The words of JSON (``true``, ``null``) are taken too, since models mix the two.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Final

from genai_pipeline.parsing.chars import Chars, Emit, MalformedError, Read

MAX_DEPTH: Final = 64
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*|(?=\.[0-9]))(\.[0-9]*)?([eE][+-]?[0-9]+)?")
_WORDS: Final = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_DIGITS: Final = "0123456789"
NAME: Final = f"{_LETTERS}{_DIGITS}_"
_ESCAPES: Final[Mapping[str, str]] = {
    "\n": "", "\\": "\\", "'": "'", '"': '"',
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_CODES: Final = {"x": 2, "u": 4, "U": 8}  # escapes by code, and how many hexadecimal digits follow
_PAIRS: Final = {"[": "]", "(": ")"}


def read_literal(chars: Chars, emit: Emit, depth: int = 0) -> Read[None]:
    """Any literal; a number or a word is passed on when it is over. Raises MalformedError."""
    if depth > MAX_DEPTH:
        raise MalformedError
    char = yield from chars.peek()
    if char in ("'", '"'):
        yield from _string(chars, emit)
    elif char in _PAIRS:
        yield from _sequence(chars, emit, depth)
    elif char == "{":
        yield from _dict(chars, emit, depth)
    elif char and char in "-.0123456789":
        emit(_number((yield from chars.take_while("+-.eE0123456789"))))
    else:
        word = yield from chars.take_while(_LETTERS)
        if word not in _WORDS:
            raise MalformedError
        emit(_WORDS[word])


def json_string(text: str) -> str:
    """The inside of a JSON string that says the text."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _number(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise MalformedError
    if "." not in text and "e" not in text.lower():
        return text
    value = float(text)
    if not math.isfinite(value):
        raise MalformedError
    return json.dumps(value)


def _string(chars: Chars, emit: Emit) -> Read[None]:
    quote = yield from chars.take()
    emit('"')
    end = quote
    if (yield from chars.peek()) == quote:
        yield from chars.take()
        if (yield from chars.peek()) != quote:
            emit('"')  # an empty string
            return
        yield from chars.take()
        end = quote * 3
    yield from _string_body(chars, emit, end)
    emit('"')


def _string_body(chars: Chars, emit: Emit, end: str) -> Read[None]:
    quotes = 0  # of the closing ones that have come, without another character between them
    while True:
        char = yield from chars.take()
        if not char or (char == "\n" and len(end) == 1):
            raise MalformedError
        if char == end[0]:
            quotes += 1
            if quotes == len(end):
                return
            continue
        emit(json_string(end[0] * quotes))
        quotes = 0
        emit(json_string((yield from _escaped(chars)) if char == "\\" else char))


def _escaped(chars: Chars) -> Read[str]:
    """What an escape stands for; one that Python does not know stands for itself."""
    char = yield from chars.take()
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char in _CODES:
        return _character((yield from _digits(chars, _CODES[char])), 16)
    if char and char in "01234567":
        digits = char
        while len(digits) < 3 and (following := (yield from chars.peek())) and following in "01234567":
            digits += yield from chars.take()
        return _character(digits, 8)
    if not char or char == "N":
        raise MalformedError
    return f"\\{char}"


def _digits(chars: Chars, count: int) -> Read[str]:
    digits = ""
    for _ in range(count):
        digits += yield from chars.take()
    return digits


def _character(digits: str, base: int) -> str:
    try:
        code = int(digits, base)
        character = chr(code)
    except (ValueError, OverflowError) as error:
        raise MalformedError from error
    if 0xD800 <= code < 0xE000 or "_" in digits or digits.strip() != digits:
        raise MalformedError  # half a surrogate pair is no text
    return character


def _sequence(chars: Chars, emit: Emit, depth: int) -> Read[None]:
    closing = _PAIRS[(yield from chars.take())]
    emit("[")
    separator = ""
    while (yield from chars.skip_white()) != closing:
        emit(separator)
        separator = ", "
        yield from read_literal(chars, emit, depth + 1)
        if (yield from chars.skip_white()) != closing:
            yield from chars.expect(",")
    yield from chars.expect(closing)
    emit("]")


def _dict(chars: Chars, emit: Emit, depth: int) -> Read[None]:
    yield from chars.expect("{")
    emit("{")
    separator = ""
    while (yield from chars.skip_white()) != "}":
        emit(separator)
        separator = ", "
        if (yield from chars.peek()) not in ("'", '"'):
            raise MalformedError
        yield from _string(chars, emit)
        yield from chars.skip_white()
        yield from chars.expect(":")
        emit(": ")
        yield from chars.skip_white()
        yield from read_literal(chars, emit, depth + 1)
        if (yield from chars.skip_white()) != "}":
            yield from chars.expect(",")
    yield from chars.expect("}")
    emit("}")

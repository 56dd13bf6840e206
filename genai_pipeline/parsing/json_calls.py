"""Calls written as a JSON object with a name and arguments, which several formats share."""

from __future__ import annotations

import json
from typing import Final

from genai_pipeline.parsing.call_format import CallSink
from genai_pipeline.parsing.chars import Chars, Emit, MalformedError, Read
from genai_pipeline.parsing.json_text import decoded_string, parsed, read_object, read_value

_NAME: Final = "name"
_ARGUMENTS: Final = ("arguments", "parameters")


def read_call(chars: Chars, sink: CallSink) -> Read[None]:
    """One object: a name, and arguments as an object or as the JSON text of one; other members mean nothing.

    Raises MalformedError.
    """
    name: str | None = None
    early: str | None = None  # arguments that came before the name
    has_arguments = False
    yield from chars.expect("{")
    char = yield from chars.skip_white()
    while char != "}":
        key = yield from decoded_string(chars)
        yield from chars.skip_white()
        yield from chars.expect(":")
        yield from chars.skip_white()
        if key == _NAME and name is None:
            name = yield from decoded_string(chars)
            sink.schema(name)
        elif key in _ARGUMENTS and not has_arguments:
            has_arguments = True
            early = yield from _arguments(chars, sink, name)
        elif key == _NAME or key in _ARGUMENTS:
            raise MalformedError
        else:
            yield from read_value(chars, _ignore)
        char = yield from _next_member(chars)
    if name is None:
        raise MalformedError
    if not has_arguments or early is not None:
        sink.begin(name)
        sink.arguments(early or "{}")
    yield from chars.expect("}")
    sink.end()


def _arguments(chars: Chars, sink: CallSink, name: str | None) -> Read[str | None]:
    """Arguments, passed on as they come; given back as text when there is no name yet."""
    char = yield from chars.peek()
    if char == '"':
        text = yield from decoded_string(chars)
        if not isinstance(parsed(text), dict):
            raise MalformedError
    elif name is None:
        pieces: list[str] = []
        yield from read_object(chars, pieces.append)
        text = "".join(pieces)
    else:
        yield from _pass_on(chars, sink, name)
        return None
    if name is None:
        return text
    sink.begin(name)
    sink.arguments(text)
    return None


def _pass_on(chars: Chars, sink: CallSink, name: str) -> Read[None]:
    if (yield from chars.peek()) != "{":
        raise MalformedError
    sink.begin(name)
    emit: Emit = sink.arguments
    yield from read_object(chars, emit)


def _next_member(chars: Chars) -> Read[str]:
    """The first character of the next member, or the closing brace; not taken."""
    char = yield from chars.skip_white()
    if char == "}":
        return char
    yield from chars.expect(",")
    char = yield from chars.skip_white()
    if char == "}":
        raise MalformedError
    return char


def _ignore(_text: str) -> None:
    pass


def call_head(name: str, key: str) -> str:
    """The text before the arguments in a call's object, as models write it."""
    return f'{{"name": {json.dumps(name)}, "{key}": '

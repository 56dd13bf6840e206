"""``<function=f><parameter=x>..</parameter></function>``, alone or inside ``<tool_call>`` tags.

A value is the bare text between the tags, less one line break on either side; what it is follows from the tool's
schema: text where that says string, else JSON, else text after all.
"""

from __future__ import annotations

import json
from typing import Any, Final

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import Chars, Emit, MalformedError, Read
from genai_pipeline.parsing.formats.xml_rules import xml_rules
from genai_pipeline.parsing.json_text import parsed
from genai_pipeline.parsing.python_text import json_string
from genai_pipeline.parsing.schemas import property_schemas, type_name, types_of

_WRAP: Final = "<tool_call>"
_UNWRAP: Final = "</tool_call>"
_OPEN: Final = "<function="
_CLOSE: Final = "</function>"
_VALUE: Final = "<parameter="
_VALUE_END: Final = "</parameter>"
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}  # Python's, which models write too


def _read(opened: str, chars: Chars, sink: CallSink) -> Read[None]:
    if opened == _WRAP:
        yield from chars.skip_white()
        yield from chars.expect(_OPEN)
    name = yield from _name(chars)
    schema = sink.schema(name)
    properties = property_schemas(schema)
    sink.begin(name)
    sink.arguments("{")
    seen: set[str] = set()
    while True:
        yield from chars.skip_white()
        yield from chars.expect("<")
        if (yield from chars.peek()) == "/":
            break
        yield from chars.expect(_VALUE[1:])
        argument = yield from _name(chars)
        if argument in seen:
            raise MalformedError
        sink.arguments(f'{", " if seen else ""}"{json_string(argument)}": ')
        seen.add(argument)
        yield from _value(chars, sink, types_of(properties.get(argument, {}), schema))
    yield from chars.expect(_CLOSE[1:])
    sink.arguments("}")
    sink.end()


def _name(chars: Chars) -> Read[str]:
    """A name up to the bracket that closes its tag."""
    name = ""
    while (char := (yield from chars.take())) != ">":
        if not char or char in "<\n":
            raise MalformedError
        name += char
    return name.strip()


def _value(chars: Chars, sink: CallSink, types: frozenset[str]) -> Read[None]:
    if types == {"string"}:
        sink.arguments('"')
        yield from _text(chars, lambda piece: sink.arguments(json_string(piece)))
        sink.arguments('"')
        return
    pieces: list[str] = []
    yield from _text(chars, pieces.append)
    sink.arguments(_typed("".join(pieces), types))


def _text(chars: Chars, emit: Emit) -> Read[None]:
    """The text of a value up to its closing tag, which is gone past."""
    if (yield from chars.peek()) == "\n":
        yield from chars.take()
    held = ""  # a line break, the beginning of the closing tag, or both
    closing = (f"\n{_VALUE_END}", _VALUE_END)
    while True:
        char = yield from chars.take()
        if not char:
            raise MalformedError
        held += char
        if held in closing:
            return
        while held and not any(end.startswith(held) for end in closing):
            emit(held[0])
            held = held[1:]


def _typed(text: str, types: frozenset[str]) -> str:
    """JSON text of a value that may be something else than a string."""
    bare = text.strip()
    bare = _WORDS.get(bare, bare)
    try:
        value = parsed(bare)
    except MalformedError:
        return json.dumps(text, ensure_ascii=False)
    return bare if _fits(value, types) else json.dumps(text, ensure_ascii=False)


def _fits(value: Any, types: frozenset[str]) -> bool:
    kind = type_name(value)
    if not types or kind in types:
        return True
    if kind == "integer":
        return "number" in types
    return kind == "number" and value.is_integer() and "integer" in types


XML_TAGGED: Final = CallFormat("xml_tagged", (_WRAP, _OPEN), (_UNWRAP,), _read, xml_rules)

"""``[get_weather(city="Paris"), now()]`` at the beginning of an answer: a Python list of calls by keyword.

By the rules, values are written as JSON but for the words ``True``, ``False`` and ``None`` of an argument itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import Chars, MalformedError, Read
from genai_pipeline.parsing.lark import (
    alternatives,
    arguments_schema,
    inline_json,
    not_beginning_with,
    quoted,
    repeated,
)
from genai_pipeline.parsing.python_text import NAME, json_string, read_literal
from genai_pipeline.parsing.schemas import is_open, property_schemas, required_names
from genai_pipeline.preprocess.tools import ToolUse

_WORDS: Final = {"boolean": '"True" | "False"', "null": '"None"'}


def _read(_opened: str, chars: Chars, sink: CallSink) -> Read[None]:
    yield from chars.expect("[")
    while (yield from chars.skip_white()) != "]":
        yield from _call(chars, sink)
        char = yield from chars.skip_white()
        if not char:
            return  # cut off after a whole call
        if char != "]":
            yield from chars.expect(",")
    yield from chars.expect("]")


def _call(chars: Chars, sink: CallSink) -> Read[None]:
    name = yield from chars.take_while(f"{NAME}.-")
    sink.schema(name)
    yield from chars.expect("(")
    sink.begin(name)
    sink.arguments("{")
    seen: set[str] = set()
    while (yield from chars.skip_white()) != ")":
        argument = yield from chars.take_while(NAME)
        if not argument or argument in seen:
            raise MalformedError
        sink.arguments(f'{", " if seen else ""}"{json_string(argument)}": ')
        seen.add(argument)
        yield from chars.skip_white()
        yield from chars.expect("=")
        yield from chars.skip_white()
        yield from read_literal(chars, sink.arguments)
        if (yield from chars.skip_white()) != ")":
            yield from chars.expect(",")
    sink.arguments("}")
    yield from chars.expect(")")
    sink.end()


def _rules(tools: ToolUse, special: Mapping[str, int]) -> str:
    names = [f"call_{index}" for index in range(len(tools.callable))]
    items = repeated("call_item", '", "', parallel=tools.parallel)
    lines = [f'calls: "[" {items} "]"', f"call_item: {alternatives(names)}", "CALL_NAME: /[A-Za-z_][A-Za-z0-9_]*/"]
    for name, tool in zip(names, tools.callable, strict=True):
        lines.append(f'{name}: {quoted(f"{tool.name}(")} {name}_none_0 ")"')
        lines += _argument_rules(name, arguments_schema(tools, tool))
    if tools.mode == "auto":
        lines.append(not_beginning_with("[", None, special))
    return "\n".join(lines)


def _argument_rules(call: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Arguments in the order of the schema; ``_none_i``: none came before the i-th, ``_some_i``: some did."""
    properties = property_schemas(schema)
    required = required_names(schema)
    for index, (name, value) in enumerate(properties.items()):
        yield f"{call}_value_{index}: {quoted(f'{name}=')} ({_value(value)})"
        for came, separator in (("none", ""), ("some", '", " ')):
            written = f"{separator}{call}_value_{index} {call}_some_{index + 1}"
            skipped = "" if name in required else f" | {call}_{came}_{index + 1}"
            yield f"{call}_{came}_{index}: {written}{skipped}"
    last = len(properties)
    more = f'CALL_NAME "=" {inline_json({})}'
    if properties or not is_open(schema):
        yield f'{call}_none_{last}: ""'
        yield f'{call}_some_{last}: ""'
    else:  # nothing is said about arguments: any
        yield f'{call}_none_{last}: ({more} (", " {more})*)?'


def _value(schema: Mapping[str, Any]) -> str:
    return _WORDS.get(str(schema.get("type")), inline_json(schema)) if "enum" not in schema else inline_json(schema)


PYTHONIC: Final = CallFormat("pythonic", (), (), _read, _rules, bare="[")

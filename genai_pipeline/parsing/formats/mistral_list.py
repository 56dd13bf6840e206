"""``[TOOL_CALLS] [{"name": "f", "arguments": {..}}, ..]``: one tag, then a JSON list of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import Chars, Read
from genai_pipeline.parsing.json_calls import call_head, read_call
from genai_pipeline.parsing.lark import alternatives, arguments_schema, inline_json, quoted, repeated, tag, text_around
from genai_pipeline.preprocess.tools import ToolUse

_OPEN: Final = "[TOOL_CALLS]"


def _read(_opened: str, chars: Chars, sink: CallSink) -> Read[None]:
    yield from chars.skip_white()
    yield from chars.expect("[")
    while True:
        yield from chars.skip_white()
        yield from read_call(chars, sink)
        char = yield from chars.skip_white()
        if not char:
            return  # cut off after a whole call
        if char == "]":
            yield from chars.expect("]")
            return
        yield from chars.expect(",")


def _rules(tools: ToolUse, special: Mapping[str, int]) -> str:
    names = [f"call_{index}" for index in range(len(tools.callable))]
    items = repeated("call_item", '", "', parallel=tools.parallel)
    lines = [
        f"calls: {tag(_OPEN, special)} call_rest",
        f'call_rest: " "? "[" {items} "]"',
        f"call_item: {alternatives(names)}",
    ]
    for name, tool in zip(names, tools.callable, strict=True):
        schema = inline_json(arguments_schema(tools, tool))
        lines.append(f'{name}: {quoted(call_head(tool.name, "arguments"))} {schema} "}}"')
    if tools.mode == "auto":
        lines.append(text_around(_OPEN, "call_rest", special, parallel=tools.parallel))
    return "\n".join(lines)


MISTRAL_LIST: Final = CallFormat("mistral_list", (_OPEN,), (), _read, _rules, short_ids=True)

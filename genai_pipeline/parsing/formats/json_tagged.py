"""``<tool_call>{"name": "f", "arguments": {..}}</tool_call>``; several calls have a pair of tags each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import Chars, Read
from genai_pipeline.parsing.json_calls import call_head, read_call
from genai_pipeline.parsing.lark import alternatives, arguments_schema, inline_json, quoted, repeated, tag, text_around
from genai_pipeline.preprocess.tools import ToolUse

_OPEN: Final = "<tool_call>"
_CLOSE: Final = "</tool_call>"


def _read(_opened: str, chars: Chars, sink: CallSink) -> Read[None]:
    yield from chars.skip_white()
    yield from read_call(chars, sink)


def _rules(tools: ToolUse, special: Mapping[str, int]) -> str:
    names = [f"call_{index}" for index in range(len(tools.callable))]
    lines = [
        f"calls: {repeated('call_tagged', 'call_gap', parallel=tools.parallel)}",
        f"call_tagged: {tag(_OPEN, special)} call_rest",
        f"call_rest: call_gap ({alternatives(names)}) call_gap {tag(_CLOSE, special)}",
        'call_gap: "\\n"?',
    ]
    for name, tool in zip(names, tools.callable, strict=True):
        schema = inline_json(arguments_schema(tools, tool))
        lines.append(f'{name}: {quoted(call_head(tool.name, "arguments"))} {schema} "}}"')
    if tools.mode == "auto":
        lines.append(text_around(_OPEN, "call_rest", special, parallel=tools.parallel))
    return "\n".join(lines)


JSON_TAGGED: Final = CallFormat("json_tagged", (_OPEN,), (_CLOSE,), _read, _rules)

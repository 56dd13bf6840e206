"""``<|python_tag|>{"name": "f", "parameters": {..}}``, or the same object bare at the beginning of an answer.

Several calls are separated by semicolons.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.parsing.call_format import CallFormat, CallSink
from genai_pipeline.parsing.chars import Chars, Read
from genai_pipeline.parsing.json_calls import call_head, read_call
from genai_pipeline.parsing.lark import (
    alternatives,
    arguments_schema,
    inline_json,
    not_beginning_with,
    quoted,
    repeated,
    tag,
)
from genai_pipeline.preprocess.tools import ToolUse

_OPEN: Final = "<|python_tag|>"


def _read(_opened: str, chars: Chars, sink: CallSink) -> Read[None]:
    while True:
        yield from chars.skip_white()
        yield from read_call(chars, sink)
        if (yield from chars.skip_white()) != ";":
            return
        yield from chars.expect(";")


def _rules(tools: ToolUse, special: Mapping[str, int]) -> str:
    names = [f"call_{index}" for index in range(len(tools.callable))]
    items = repeated("call_item", '"; "', parallel=tools.parallel)
    lines = [f"calls: {tag(_OPEN, special)}? {items}", f"call_item: {alternatives(names)}"]
    for name, tool in zip(names, tools.callable, strict=True):
        schema = inline_json(arguments_schema(tools, tool))
        lines.append(f'{name}: {quoted(call_head(tool.name, "parameters"))} {schema} "}}"')
    if tools.mode == "auto":
        lines.append(not_beginning_with("{", _OPEN, special))
    return "\n".join(lines)


LLAMA_PYTHON_TAG: Final = CallFormat("llama_python_tag", (_OPEN,), (), _read, _rules, bare="{")

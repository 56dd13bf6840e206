"""Grammar rules of XML style calls, where strings are bare text and everything else is JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.errors import OptionError
from genai_pipeline.parsing.lark import alternatives, arguments_schema, inline_json, quoted, repeated, tag, text_around
from genai_pipeline.parsing.schemas import followed, is_open, property_schemas, required_names, types_of
from genai_pipeline.preprocess.tools import Tool, ToolUse
from genai_pipeline.problems import one_of

_END: Final = r"<\/parameter>"
_SAID: Final = frozenset(
    ("title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly")
)
_BOUND: Final = frozenset(("type", "enum", "const", "minLength", "maxLength", "anyOf", "oneOf", "$defs", "definitions"))


def xml_rules(tools: ToolUse, special: Mapping[str, int]) -> str:
    """Rules for ``calls``, wrapped in tags or not, and ``text_or_calls``.

    Raises OptionError for a string whose schema has a keyword that bare text cannot be held to.
    """
    names = [f"call_{index}" for index in range(len(tools.callable))]
    wrapped = f'{tag("<tool_call>", special)} "\\n" call_bare "\\n" {tag("</tool_call>", special)}'
    lines = [
        f"calls: {repeated('call_item', 'call_gap', parallel=tools.parallel)}",
        f"call_item: call_bare | {wrapped}",
        'call_bare: "<function=" call_rest',
        f"call_rest: {alternatives(names)}",
        'call_gap: "\\n"?',
        "CALL_NAME: /[A-Za-z_][A-Za-z0-9_]*/",
        f"CALL_VALUE: {_text('*')}",
    ]
    for name, tool in zip(names, tools.callable, strict=True):
        lines += _call(name, tool, arguments_schema(tools, tool))
    if tools.mode == "auto":
        lines.append(text_around("<function=", "call_rest", special, parallel=tools.parallel))
    return "\n".join(lines)


def _call(call: str, tool: Tool, schema: Mapping[str, Any]) -> Iterator[str]:
    properties = property_schemas(schema)
    required = required_names(schema)
    arguments = [f"{call}_value_{index}{'' if name in required else '?'}" for index, name in enumerate(properties)]
    if not properties and is_open(schema):
        arguments = ['("<parameter=" CALL_NAME ">\\n" CALL_VALUE)*']
    yield f'{call}: {quoted(f"{tool.name}>" + chr(10))} {" ".join(arguments)} "</function>"'
    for index, (name, value) in enumerate(properties.items()):
        where = f"{tool.name}.{name}"
        yield from _argument(f"{call}_value_{index}", name, followed(value, schema), schema, where)


def _argument(rule: str, name: str, value: Mapping[str, Any], root: Mapping[str, Any], where: str) -> Iterator[str]:
    begin = quoted(f"<parameter={name}>\n")
    end = quoted("\n</parameter>\n")
    types = types_of(value, root)
    if types and "string" not in types:
        shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
        yield f"{rule}: {begin} {inline_json({**shared, **value})} {end}"
        return
    _check(value, root, where)
    choices = [value["const"]] if "const" in value else value.get("enum")
    if choices is not None:
        texts = [quoted(choice if isinstance(choice, str) else json.dumps(choice)) for choice in choices]
        yield f"{rule}: {begin} ({alternatives(texts)}) {end}"
        return
    low, high = value.get("minLength", 0), value.get("maxLength", "")
    if "minLength" in value or "maxLength" in value:
        terminal = rule.upper()
        yield f"{terminal}: {_text(f'{{{low},{high}}}')}"
        yield f"{rule}: {begin} {terminal}"
    else:
        yield f"{rule}: {begin} CALL_VALUE"


def _text(times: str) -> str:
    """A terminal for bare text and the closing tag, which does not stand inside the text."""
    return f'(/(.|\\n){times}/ & ~/(.|\\n)*{_END}(.|\\n)*/) "\\n</parameter>\\n"'


def _check(schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> None:
    """Refuse keywords that bare text is not held to."""
    for key in schema:
        if key not in _SAID | _BOUND:
            message = f"arguments written as bare text cannot be held to '{key}' (of {where})"
            hint = f"of strings, this package's calls take {one_of(sorted(_BOUND))}; or set tool_choice to 'auto'"
            raise OptionError(message, param="tools", hint=hint)
    for key in ("anyOf", "oneOf"):
        for branch in schema.get(key, ()):
            _check(followed(branch, root), root, where)

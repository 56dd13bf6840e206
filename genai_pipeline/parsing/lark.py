"""Grammar rules in llguidance's dialect of Lark: quoted texts, control tokens, JSON by a schema.

Rules of a format define ``calls``: one call, or several where a request allows it. For a request whose answer may be
text, they also define ``text_or_calls``. Names of helper rules begin with ``call`` or ``CALL``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from genai_pipeline.preprocess.tools import Tool, ToolUse

ANY_OBJECT: Final[Mapping[str, Any]] = {"type": "object"}


def quoted(text: str) -> str:
    """A text as a literal."""
    return json.dumps(text)


def tag(text: str, special: Mapping[str, int]) -> str:
    """A tag: one token where it is a control token, else its text."""
    return f"<[{special[text]}]>" if text in special else quoted(text)


def inline_json(schema: Mapping[str, Any]) -> str:
    """JSON that a schema allows."""
    return f"%json {json.dumps(schema)}"


def arguments_schema(tools: ToolUse, tool: Tool) -> Mapping[str, Any]:
    """The schema that binds a tool's arguments: its own where a call is due or the tool is strict, else any object."""
    return tool.parameters if tools.mode == "required" or tool.strict else ANY_OBJECT


def alternatives(names: Sequence[str]) -> str:
    """One of several rules."""
    return " | ".join(names)


def repeated(item: str, separator: str, *, parallel: bool) -> str:
    """An item, or several with a separator between them."""
    return f"{item} ({separator} {item})*" if parallel else item


def text_around(opening: str, rest: str, special: Mapping[str, int], *, parallel: bool) -> str:
    """Rules for text in which a tag begins a call; ``rest``: the rule of what follows the tag."""
    times = "*" if parallel else "?"
    lines = [f"text_or_calls: (call_lead {rest}){times} CALL_TEXT", "CALL_TEXT: /(.|\\n)*/"]
    if opening in special:
        lines.append(f"call_lead: CALL_TEXT {tag(opening, special)}")
    else:
        lines.append(f"call_lead[lazy]: CALL_TEXT {quoted(opening)}")
    return "\n".join(lines)


def not_beginning_with(characters: str, opening: str | None, special: Mapping[str, int]) -> str:
    """Rules for text that is no call: its first character is not one that begins a call, and no tag stands in it."""
    plain = f"/[ \\t\\r\\n]*([^ \\t\\r\\n{re.escape(characters)}](.|\\n)*)?/"
    if opening is not None and opening not in special:
        plain += f" & ~/(.|\\n)*{re.escape(opening)}(.|\\n)*/"
    return f"text_or_calls: calls | CALL_PLAIN\nCALL_PLAIN: {plain}"

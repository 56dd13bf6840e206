"""A request's conversation, checked and brought into the form chat templates expect.

Content is a string or a list of parts. All text parts count, in order; a template that takes only strings gets them
joined by line breaks (where images or sounds stand among them, the caller joins). Tool call arguments given as JSON
text become objects, as templates written for transformers expect. Keys whose value is null are left out, and reasoning
is given under each name templates use for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from genai_pipeline.errors import RequestError
from genai_pipeline.preprocess.plain_encoder import encodable
from genai_pipeline.problems import nearest, one_of, shown

ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
ContentForm = Literal["string", "parts", "either"]

_REASONING = ("reasoning_content", "thinking", "reasoning")
MODALITY_OF_PART = {
    "text": "text",
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
}
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class MessageRules:
    """What conversations a template and a package take."""

    roles: frozenset[str] = ROLES
    modalities: frozenset[str] = frozenset(("text",))
    content: ContentForm = "string"


def user_turn(prompt: str, system: str | None = None) -> list[dict[str, Any]]:
    """A plain prompt as a conversation of one user turn, after a system message if there is one."""
    head = [] if system is None else [{"role": "system", "content": system}]
    return [*head, {"role": "user", "content": prompt}]


def read_messages(messages: Sequence[Mapping[str, Any]], rules: MessageRules) -> list[dict[str, Any]]:
    """The conversation as the template gets it; raises RequestError naming the message and field at fault."""
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise RequestError(f"messages must be a list, not {type(messages).__name__}", param="messages")
    if not messages:
        raise RequestError("messages is empty", param="messages", hint="give at least one message")
    return [_message(f"messages[{index}]", message, rules) for index, message in enumerate(messages)]


def read_objects(name: str, values: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tools or documents as plain data, None when there are none; raises RequestError."""
    if values is None:
        return None
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        raise RequestError(f"{name} must be a list, not {type(values).__name__}", param=name)
    for index, value in enumerate(values):
        if not isinstance(value, Mapping):
            raise RequestError(f"{name}[{index}] must be an object, not {type(value).__name__}", param=name)
    return [plain_data(f"{name}[{index}]", value) for index, value in enumerate(values)] or None


def plain_data(where: str, value: Any, depth: int = 0) -> Any:
    """A copy made of JSON types only, so that a template meets no object with methods; raises RequestError."""
    if depth > _MAX_DEPTH:
        raise RequestError(f"{where} is nested more than {_MAX_DEPTH} deep", param=where)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return encodable(value, where)
    for kind in (int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, Mapping):
        return {str(key): plain_data(f"{where}.{key}", item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(f"{where}[{index}]", item, depth + 1) for index, item in enumerate(value)]
    raise RequestError(f"{where} must be JSON data, not {type(value).__name__}", param=where)


def _message(where: str, message: Any, rules: MessageRules) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object, not {type(message).__name__}", param=where)
    read = {key: value for key, value in plain_data(where, message).items() if value is not None}
    _check_role(where, read.get("role"), rules)
    if "content" in read:
        read["content"] = _content(f"{where}.content", read["content"], rules)
    elif "tool_calls" not in read:
        raise RequestError(f"{where} has no content", param=f"{where}.content")
    if "tool_calls" in read:
        read["tool_calls"] = _tool_calls(f"{where}.tool_calls", read["tool_calls"])
    reasoning = next((read[name] for name in _REASONING if name in read), None)
    return read if reasoning is None else {"thinking": reasoning, **read, "reasoning_content": reasoning}


def _check_role(where: str, role: Any, rules: MessageRules) -> None:
    if not isinstance(role, str):
        raise RequestError(f"{where} has no role", param=f"{where}.role", hint=f"roles are: {one_of(rules.roles)}")
    if role not in rules.roles:
        hint = nearest(role, rules.roles) or f"roles are: {one_of(rules.roles)}"
        raise RequestError(f"{where} has an unknown role {shown(role)}", param=f"{where}.role", hint=hint)


def _content(where: str, content: Any, rules: MessageRules) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if rules.content == "parts" else content
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a text or a list of parts", param=where)
    if not content:
        raise RequestError(f"{where} is an empty list", param=where, hint="give a text, or at least one part")
    parts = [_part(f"{where}[{index}]", part, rules) for index, part in enumerate(content)]
    if rules.content == "string" and all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _part(where: str, part: Any, rules: MessageRules) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    modality = MODALITY_OF_PART.get(kind) if isinstance(kind, str) else None
    if not isinstance(part, dict) or modality is None:
        hint = nearest(str(kind), MODALITY_OF_PART) or f"types are: {one_of(MODALITY_OF_PART)}"
        raise RequestError(f"{where} is a part of unknown type {shown(kind)}", param=where, hint=hint)
    if modality not in rules.modalities:
        hint = f"it takes: {one_of(rules.modalities)}"
        raise RequestError(f"{where}: this package takes no {modality} in messages", param=where, hint=hint)
    if modality == "text" and not isinstance(part.get("text"), str):
        raise RequestError(f"{where} needs a 'text'", param=where)
    return part


def _tool_calls(where: str, calls: Any) -> list[Any]:
    if not isinstance(calls, list):
        raise RequestError(f"{where} must be a list", param=where)
    return [_tool_call(f"{where}[{index}]", call) for index, call in enumerate(calls)]


def _tool_call(where: str, call: Any) -> dict[str, Any]:
    """A call in either shape: ``{function: {name, arguments}}`` or ``{name, arguments}``."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RequestError(f"{where} needs a function with a name", param=where)
    if isinstance(function.get("arguments"), str):
        function = {**function, "arguments": _arguments(f"{where}.function.arguments", function["arguments"])}
    return {**call, "function": function} if "function" in call else function


def _arguments(where: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise RequestError(f"{where} is not valid JSON: {error}", param=where) from error
    except (ValueError, RecursionError) as error:
        message = f"{where} has a number of too many digits, or is nested too deeply"
        raise RequestError(message, param=where) from error
    if not isinstance(value, dict):
        raise RequestError(f"{where} must be a JSON object, not {type(value).__name__}", param=where)
    return value

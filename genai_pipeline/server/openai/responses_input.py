"""The items of a Responses request as a conversation: messages, reasoning, calls and what they gave back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from genai_pipeline.problems import nearest
from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.bodies import SHOWN, Fields
from genai_pipeline.server.conversation import Content, Conversation, Part
from genai_pipeline.server.inline_media import is_data_url
from genai_pipeline.server.media_parts import Source, read_detail, read_sound

Item = dict[str, Any]

_ROLES: Final = ("user", "assistant", "system", "developer")
_TEXTS: Final = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
_IDENTITY: Final = ("id", "status", "phase", "caller", "namespace")  # of items that come back; they change no answer


def input_items(value: Any) -> list[Item]:
    """The input of a request as a list of items: a text is one message of the user. Raises ApiError."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise bad_request("input must be a string or a list of items", "input")
    if not value:
        raise bad_request("input is an empty list", "input")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise bad_request(f"input[{index}] must be an object", f"input[{index}]")
    return value


def read_items(items: Sequence[Mapping[str, Any]], conversation: Conversation, place: str | None = None) -> None:
    """Add items to a conversation; ``place`` is where all of them come from, if not from the input itself.

    Raises ApiError.
    """
    for index, item in enumerate(items):
        at = place or f"input[{index}]"
        fields = Fields(item, f"{at}.")
        kind = fields.text("type") or ("message" if fields.has("role") else None)
        read = None if kind is None else _READERS.get(kind)
        if read is None:
            raise _unsupported("item", f"{at}.type", kind, _READERS)
        fields.ignore(*_IDENTITY)
        read(fields, conversation, at)
        fields.skip_rest("/v1/responses")


def without_data(item: Item) -> Item:
    """An item as it is shown: an image or a sound whose data are in it without these."""
    content = item.get("content")
    return {**item, "content": [_without_data(part) for part in content]} if isinstance(content, list) else item


def _without_data(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "input_audio":
        return {**part, "input_audio": {**part["input_audio"], "data": None}}
    url = part.get("image_url")
    return {**part, "image_url": None} if isinstance(url, str) and is_data_url(url) else part


def _message(fields: Fields, conversation: Conversation, at: str) -> None:
    role = fields.must("role", fields.choice("role", _ROLES))
    content = _content(fields, "content", at)
    if role == "assistant":
        conversation.answer(content, at)
    else:  # developer is the newer name of system
        conversation.say("system" if role == "developer" else role, content, at)


def _call(fields: Fields, conversation: Conversation, at: str) -> None:
    id = fields.must("call_id", fields.text("call_id"))
    name = fields.must("name", fields.text("name"))
    arguments = fields.must("arguments", fields.text("arguments"))
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise fields.wrong("arguments", "must be the JSON text of an object")
    conversation.call(id, name, value, at)


def _result(fields: Fields, conversation: Conversation, at: str) -> None:
    id = fields.must("call_id", fields.text("call_id"))
    conversation.result(id, _content(fields, "output", at), at, f"{at}.call_id")


def _reasoning(fields: Fields, conversation: Conversation, at: str) -> None:
    if fields.has("encrypted_content"):
        raise fields.wrong("encrypted_content", "is not from here: reasoning of this server is in content")
    parts = [*(fields.list("content") or ()), *(fields.list("summary") or ())]
    texts = []
    for index, part in enumerate(parts):
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise bad_request(f"{at}: part {index} of the reasoning has no text", at)
        texts.append(text)
    if texts:
        conversation.reason("\n".join(texts), at)


_READERS: Final[Mapping[str, Callable[[Fields, Conversation, str], None]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _result,
    "reasoning": _reasoning,
}


def _content(fields: Fields, name: str, at: str) -> Content:
    """A text, or parts in the form that messages have."""
    value = fields.must(name, fields.any(name))
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fields.wrong(name, "must be a string or a list of parts")
    if not value:
        raise fields.wrong(name, "is an empty list")
    return [_part(part, f"{at}.{name}[{index}]") for index, part in enumerate(value)]


def _part(part: Any, at: str) -> Part:
    if not isinstance(part, dict):
        raise bad_request(f"{at} must be an object", at)
    fields = Fields(part, f"{at}.")
    kind = fields.text("type")
    if kind in _TEXTS:
        name = _TEXTS[kind]
        return {"type": "text", "text": fields.must(name, fields.text(name))}
    if kind == "input_image":
        fields.refuse("file_id")
        read_detail(fields)
        return Source("image", "url", fields.must("image_url", fields.text("image_url")), f"{at}.image_url")
    if kind == "input_audio":
        return read_sound(fields, at)
    raise _unsupported("part", f"{at}.type", kind, (*_TEXTS, "input_image", "input_audio"))


def _unsupported(what: str, param: str, kind: str | None, known: Any) -> Exception:
    if kind is None:
        return bad_request(f"{param} is required", param)
    hint = nearest(kind[:SHOWN], known)
    message = f"{param}: {what}s of type '{kind[:SHOWN]}' are not supported" + (f"; {hint}" if hint else "")
    return bad_request(message, param, code=f"unsupported_{what}")

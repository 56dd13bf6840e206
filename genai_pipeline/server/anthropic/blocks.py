"""Messages with blocks as a conversation: text, images, thinking, calls of tools and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from genai_pipeline.problems import nearest
from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import SHOWN, Fields
from genai_pipeline.server.conversation import Content, Conversation, Part
from genai_pipeline.server.media_parts import Source

PATH: Final = "/v1/messages"
_ROLES: Final = ("user", "assistant", "system")
_IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NO_EFFECT: Final = ("cache_control",)  # on answers: what a cache should keep


def read_messages(fields: Fields, conversation: Conversation) -> None:
    """Add ``system`` and ``messages`` to a conversation. Raises ApiError 400."""
    system = fields.any("system")
    if system is not None:
        conversation.say("system", _texts(system, "system"), "system")
    messages = fields.must("messages", fields.list("messages"))
    if not messages:
        raise fields.wrong("messages", "is an empty list")
    for index, message in enumerate(messages):
        _message(message, conversation, f"messages[{index}]")
    if conversation.messages[-1]["role"] == "assistant":
        param = f"messages[{len(messages) - 1}]"
        message = f"{param}: going on with an answer that is already begun is not supported; end with a user's message"
        raise bad_request(message, param, code="unsupported_field")


def _message(message: Any, conversation: Conversation, at: str) -> None:
    fields = _object(message, at)
    role = fields.must("role", fields.choice("role", _ROLES))
    content = fields.must("content", fields.any("content"))
    fields.skip_rest(PATH)
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise fields.wrong("content", "must be a string or a list of blocks")
    if not content:
        raise fields.wrong("content", "is an empty list")
    blocks = [
        (_object(block, f"{at}.content[{index}]"), f"{at}.content[{index}]") for index, block in enumerate(content)
    ]
    if role == "assistant":
        _assistant(blocks, conversation, at)
    else:
        _user(blocks, conversation, role, at)


def _user(blocks: Sequence[tuple[Fields, str]], conversation: Conversation, role: str, at: str) -> None:
    """Results of tools are messages of their own; what stands around them is one message of the user each."""
    parts: list[Part] = []
    for fields, place in blocks:
        kind = _kind(fields, place, (*_PARTS, "tool_result"))
        if kind != "tool_result":
            parts.append(_PARTS[kind](fields, place))
            continue
        _say(conversation, role, parts, at)
        parts = []
        _result(fields, conversation, place)
    _say(conversation, role, parts, at)


def _say(conversation: Conversation, role: str, parts: list[Part], at: str) -> None:
    """Parts as a message, joined with one of the same role before it."""
    if not parts:
        return
    last = conversation.messages[-1] if conversation.messages else {}
    if last.get("role") == role == "user":
        last["content"] = [*last["content"], *parts]
        return
    conversation.say(role, parts, at)


def _result(fields: Fields, conversation: Conversation, at: str) -> None:
    id = fields.must("tool_use_id", fields.text("tool_use_id"))
    given = fields.any("content")
    content = "" if given is None else _parts(given, f"{at}.content")
    if fields.boolean("is_error"):
        content = f"Error: {content}" if isinstance(content, str) else [{"type": "text", "text": "Error:"}, *content]
    fields.ignore("toolset_name", *_NO_EFFECT)
    fields.skip_rest(PATH)
    conversation.result(id, content, at, f"{at}.tool_use_id")


def _assistant(blocks: Sequence[tuple[Fields, str]], conversation: Conversation, at: str) -> None:
    """One turn: its thinking, its text, its calls."""
    texts: list[Part] = []
    calls: list[tuple[Fields, str]] = []
    for fields, place in blocks:
        kind = _kind(fields, place, ("text", "thinking", "tool_use"))
        if kind == "text":
            texts.append(_text(fields, place))
        elif kind == "thinking":
            conversation.reason(fields.must("thinking", fields.text("thinking")), at)
            fields.ignore("signature")
        else:
            calls.append((fields, place))
    if texts:
        conversation.answer(texts, at)
    for fields, place in calls:
        id = fields.must("id", fields.text("id"))
        name = fields.must("name", fields.text("name"))
        conversation.call(id, name, fields.must("input", fields.mapping("input")), place)
        fields.ignore("caller", "toolset_name", *_NO_EFFECT)
        fields.skip_rest(PATH)


def _texts(value: Any, at: str) -> Content:
    """A text, or blocks of text."""
    content = _parts(value, at)
    if not isinstance(content, str) and any(isinstance(part, Source) for part in content):
        raise bad_request(f"{at} takes blocks of text only", at)
    return content


def _parts(value: Any, at: str) -> Content:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise bad_request(f"{at} must be a string or a list of blocks that is not empty", at)
    parts = []
    for index, block in enumerate(value):
        place = f"{at}[{index}]"
        fields = _object(block, place)
        parts.append(_PARTS[_kind(fields, place, tuple(_PARTS))](fields, place))
    return parts


def _text(fields: Fields, at: str) -> Part:
    text = fields.must("text", fields.text("text"))
    fields.ignore("citations", *_NO_EFFECT)
    fields.skip_rest(PATH)
    return {"type": "text", "text": text}


def _image(fields: Fields, at: str) -> Part:
    source = Fields(fields.must("source", fields.mapping("source")), f"{at}.source.")
    kind = source.must("type", source.choice("type", ("base64", "url")))
    fields.ignore(*_NO_EFFECT)
    fields.skip_rest(PATH)
    if kind == "url":
        given = Source("image", "url", source.must("url", source.text("url")), f"{at}.source.url")
    else:
        source.must("media_type", source.choice("media_type", _IMAGE_TYPES))  # the data themselves say which
        given = Source("image", "base64", source.must("data", source.text("data")), f"{at}.source.data")
    source.skip_rest(PATH)
    return given


_PARTS: Final[Mapping[str, Callable[[Fields, str], Part]]] = {"text": _text, "image": _image}


def _object(value: Any, at: str) -> Fields:
    if not isinstance(value, dict):
        raise bad_request(f"{at} must be an object", at)
    return Fields(value, f"{at}.")


def _kind(fields: Fields, at: str, known: Sequence[str]) -> str:
    kind = fields.must("type", fields.text("type"))
    if kind not in known:
        raise unsupported_block(f"{at}.type", kind, known)
    return kind


def unsupported_block(param: str, kind: str, known: Sequence[str]) -> ApiError:
    """A 400 for a block of a type that is not known here, or not in its place."""
    hint = nearest(kind[:SHOWN], known) or f"here are {', '.join(known)}"
    message = f"{param}: blocks of type '{kind[:SHOWN]}' are not supported; {hint}"
    return bad_request(message, param, code="unsupported_block")

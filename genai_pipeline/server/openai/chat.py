"""Bodies of ``/v1/chat/completions``: what of them becomes the conversation, the options, and the form of the response.

The role ``developer`` is the newer name of ``system`` and reaches templates as that. Parts with a refusal are texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.media_parts import read_part
from genai_pipeline.server.openai.allowed_tools import narrowed
from genai_pipeline.server.openai.fields import (
    note_fields,
    read_metadata,
    read_options,
    read_priority,
    read_stream,
    refuse_others,
)

# Fields of the interface that would change the answer, or promise what is not there.
_UNSUPPORTED: Final = (
    "audio",
    "functions",
    "function_call",
    "moderation",
    "prediction",
    "web_search_options",
)
_ANSWER_OPTIONS: Final = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "chat_template_kwargs",
    "logprobs",
    "top_logprobs",
)
_VERBOSITIES: Final = ("low", "medium", "high")
_UNSUPPORTED_IN_MESSAGES: Final = ("audio", "function_call")


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A request for an answer in a conversation; ``options`` are arguments of ``Pipeline.aopen``."""

    model: str | None
    messages: list[dict[str, Any]]
    options: dict[str, Any]
    names: dict[str, str]  # fields of options that have another name here
    priority: str
    stream: bool
    usage: bool  # whether a stream ends with usage
    metadata: dict[str, str] | None
    session: str | None  # the id of a session that the conversation belongs to

    @property
    def arguments(self) -> dict[str, Any]:
        """What the model is asked."""
        return {"messages": self.messages, **self.turn_options}

    @property
    def turn_options(self) -> dict[str, Any]:
        """The same without the conversation."""
        return {"priority": self.priority, **self.options}

    @property
    def scored(self) -> bool:
        """Whether the answer has log probabilities."""
        return bool(self.options.get("logprobs", False))


def read_chat(fields: Fields) -> ChatBody:
    """The body by what it means. Raises ApiError 400; what only a package can tell is refused when it is asked."""
    fields.refuse(*_UNSUPPORTED)
    if fields.boolean("store"):
        fields.refuse("store")
    modalities = fields.list("modalities")
    if modalities not in (None, ["text"]):
        raise fields.wrong("modalities", 'may be ["text"] only')
    if fields.choice("verbosity", _VERBOSITIES) not in (None, "medium"):
        fields.refuse("verbosity")
    note_fields(fields)
    stream, usage = read_stream(fields)
    options, names = read_options(fields, *_ANSWER_OPTIONS)
    messages = fields.must("messages", fields.list("messages"))
    body = ChatBody(
        model=fields.text("model"),
        messages=read_messages(messages),
        options=narrowed(options),
        names=names,
        priority=read_priority(fields),
        stream=stream,
        usage=usage,
        metadata=read_metadata(fields),
        session=fields.text("session"),
    )
    refuse_others(fields, {"prompt": "messages, or /v1/completions"})
    return body


def read_messages(messages: list[Any]) -> list[Any]:
    """Messages as templates should get them, images and sounds as Sources. Raises ApiError 400."""
    return [_message(f"messages[{index}]", message) for index, message in enumerate(messages)]


def _message(where: str, message: Any) -> Any:
    """A message as the chat template should get it; what is wrong with it is found where it is read."""
    if not isinstance(message, dict):
        return message
    Fields(message, f"{where}.").refuse(*_UNSUPPORTED_IN_MESSAGES)
    made = dict(message)
    if made.get("role") == "developer":
        made["role"] = "system"
    refusal = made.pop("refusal", None)
    if refusal is not None and made.get("content") is None:
        made["content"] = refusal
    if isinstance(made.get("content"), list):
        made["content"] = [_part(part, f"{where}.content[{index}]") for index, part in enumerate(made["content"])]
    return made


def _part(part: Any, at: str) -> Any:
    if isinstance(part, dict) and part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal")}
    return read_part(part, at)

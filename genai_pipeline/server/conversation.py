"""Conversations written as lists of items or blocks, put together as the messages that chat templates know.

Reasoning, text and calls that follow each other are one turn of the assistant. Each message remembers its place in the
body, so that what is wrong with it can be said in the client's own terms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.media_parts import Source

Part = dict[str, Any] | Source
Content = str | list[Part]
Message = dict[str, Any]

_PLACE: Final = re.compile(r"\bmessages\[(\d+)\](\.(?:content|tool_calls|role|name)\b(?:\[\d+\])?)?")


class Conversation:
    """Messages under way."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.places: list[str] = []
        self._calls: dict[str, str] = {}  # names of functions by the ids of their calls
        self._open = False  # whether the last message is a turn of the assistant that may go on

    def say(self, role: str, content: Content, place: str) -> None:
        """A message of anybody but the assistant."""
        self._add({"role": role, "content": content}, place)

    def answer(self, content: Content, place: str) -> None:
        """Text of the assistant; after a call it is another turn."""
        turn = self._turn(place, closed_by=("content", "tool_calls"))
        turn["content"] = content

    def reason(self, text: str, place: str) -> None:
        """Reasoning of the assistant, which comes before its text and calls."""
        turn = self._turn(place, closed_by=("content", "tool_calls"))
        turn["reasoning_content"] = turn.get("reasoning_content", "") + text

    def call(self, id: str, name: str, arguments: str | Mapping[str, Any], place: str) -> None:
        """A call of a function by the assistant."""
        turn = self._turn(place, closed_by=())
        function = {"name": name, "arguments": arguments}
        turn.setdefault("tool_calls", []).append({"id": id, "type": "function", "function": function})
        self._calls[id] = name

    def result(self, id: str, content: Content, place: str, param: str) -> None:
        """What a function gave back. Raises ApiError where nobody has called it."""
        if id not in self._calls:
            raise bad_request(f"{param} names no call that comes before it", param)
        self._add({"role": "tool", "tool_call_id": id, "name": self._calls[id], "content": content}, place)

    def _turn(self, place: str, *, closed_by: Sequence[str]) -> Message:
        """The turn of the assistant that goes on, or a new one."""
        if not self._open or any(name in self.messages[-1] for name in closed_by):
            self._add({"role": "assistant"}, place)
            self._open = True
        return self.messages[-1]

    def _add(self, message: Message, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)
        self._open = False


def relocated(error: ApiError, places: Sequence[str]) -> ApiError:
    """The same error with places in the body instead of numbers of messages."""

    def place(found: re.Match[str]) -> str:
        index = int(found[1])
        return places[index] if index < len(places) else found[0]

    return ApiError(
        error.status,
        _PLACE.sub(place, error.message),
        type=error.type,
        code=error.code,
        param=None if error.param is None else _PLACE.sub(place, error.param),
        retry_after=error.retry_after,
    )

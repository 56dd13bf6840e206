"""The response object and the stream around it: created, in progress, its items, and how it ended."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.api_errors import ApiError, api_error
from genai_pipeline.server.openai.responses_output import OutputItems
from genai_pipeline.server.openai.responses_request import ResponseRequest
from genai_pipeline.server.segments import Segments, calls_stream
from genai_pipeline.types import Event, Usage

JsonObject = dict[str, Any]

_SAMPLING: Final = ("temperature", "top_p")  # repeated as they are in effect
_ENDINGS: Final[Mapping[str, str]] = {"length": "incomplete", "error": "failed", "cancelled": "failed"}


class ResponseObject:
    """One response under way; streamed and whole it says the same."""

    def __init__(self, request: ResponseRequest, model: str, pipe: Pipeline) -> None:
        """``model`` is the name that the package is served by."""
        effective = pipe.options(**{name: request.options[name] for name in _SAMPLING if name in request.options})
        self.id = f"resp_{secrets.token_hex(24)}"
        self._head: JsonObject = {"id": self.id, "object": "response", "created_at": int(time.time()), "model": model}
        self._echo = {**request.echo, **{name: getattr(effective, name) for name in _SAMPLING}}
        self._segments = Segments(live=calls_stream(request.options, pipe))
        self._items = OutputItems(pipe.token_bytes, scored=bool(request.options.get("logprobs")))
        self._error: ApiError | None = None
        self._number = 0

    @property
    def output(self) -> list[JsonObject]:
        """The items so far."""
        return self._items.items(self._segments.all, self._item_status)

    @property
    def succeeded(self) -> bool:
        """Whether it ended with an answer, perhaps one that was cut by its limit."""
        return self._status in ("completed", "incomplete")

    def begin(self) -> Iterator[JsonObject]:
        """The events before any item."""
        response = self._object("in_progress", [])
        yield self._numbered({"type": "response.created", "response": response})
        yield self._numbered({"type": "response.in_progress", "response": response})

    def add(self, event: Event) -> Iterator[JsonObject]:
        """The events that one event of the answer makes."""
        changes = list(self._segments.add(event))
        for change in changes:
            last = change.segment is self._segments.all[-1]
            for made in self._items.events(change, self._item_status if last else "completed"):
                yield self._numbered(made)

    def fail(self, error: BaseException) -> None:
        """The answer ended with an error that came in no event."""
        self._error = api_error(error)

    def end(self) -> JsonObject:
        """The last event, with the whole response."""
        return self._numbered({"type": f"response.{self._status}", "response": self.object()})

    def object(self) -> JsonObject:
        """The response as it is."""
        return self._object(self._status, self.output)

    def error(self) -> ApiError | None:
        """What prevented an answer."""
        cause = self._segments.error
        if cause is not None and self._error is None:
            self._error = api_error(cause)
            self._error.__cause__ = cause
        return self._error

    @property
    def _status(self) -> str:
        if self._error is not None:
            return "failed"
        reason = self._segments.finish_reason
        return "in_progress" if reason is None else _ENDINGS.get(reason, "completed")

    @property
    def _item_status(self) -> str:
        """The status of the item that ended last."""
        return "incomplete" if self._status in ("incomplete", "failed") else "completed"

    def _object(self, status: str, output: list[JsonObject]) -> JsonObject:
        error, usage = self.error(), self._segments.usage
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            **self._head,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": None if error is None else {"code": "server_error", "message": error.message},
            "incomplete_details": cut,
            "output": output,
            **self._echo,
            "usage": None if usage is None else _usage(usage, self._segments.reasoning_tokens),
        }

    def _numbered(self, event: JsonObject) -> JsonObject:
        event["sequence_number"] = self._number
        self._number += 1
        return event


def _usage(usage: Usage, reasoning_tokens: int) -> JsonObject:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }

"""The message and the events of its stream, from the changes of an answer's segments."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.segments import Change, Segment, Segments, calls_stream
from genai_pipeline.types import Event

JsonObject = dict[str, Any]

_REASONS: Final[Mapping[str, str]] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageObject:
    """One message under way; streamed and whole it says the same."""

    def __init__(self, model: str, options: Mapping[str, Any], pipe: Pipeline, prompt_tokens: int) -> None:
        """``model`` is the name that the package is served by; ``options`` are those of the request."""
        self.id = f"msg_{secrets.token_hex(12)}"
        self._model = model
        self._stops = frozenset(options.get("stop", ()))
        self._segments = Segments(live=calls_stream(options, pipe))
        self._prompt_tokens = prompt_tokens

    def begin(self) -> Iterator[JsonObject]:
        """The events before any block."""
        yield {"type": "message_start", "message": self._object([], {"stop_reason": None, "stop_sequence": None})}
        yield {"type": "ping"}

    def add(self, event: Event) -> Iterator[JsonObject]:
        """The events that one event of the answer makes. Raises ApiError for a request that was ended from outside."""
        for change in self._segments.add(event):
            yield from _events(change)

    def end(self) -> Iterator[JsonObject]:
        """The events after the last block."""
        yield {"type": "message_delta", "delta": self._ending(), "usage": self._usage()}
        yield {"type": "message_stop"}

    def object(self) -> JsonObject:
        """The whole message."""
        return self._object([_block(segment, whole=True) for segment in self._segments.all], self._ending())

    def _object(self, content: list[JsonObject], ending: JsonObject) -> JsonObject:
        head = {"id": self.id, "type": "message", "role": "assistant", "model": self._model}
        return {**head, "content": content, **ending, "usage": self._usage()}

    def _ending(self) -> JsonObject:
        stop = self._segments.stop_string
        if stop in self._stops:
            return {"stop_reason": "stop_sequence", "stop_sequence": stop}
        return {"stop_reason": _REASONS.get(self._segments.finish_reason or ""), "stop_sequence": None}

    def _usage(self) -> JsonObject:
        """Tokens so far; those that were read from the cache are counted apart, once it is known which were."""
        usage = self._segments.usage
        cached = 0 if usage is None else usage.cached_tokens
        prompt = self._prompt_tokens if usage is None else usage.prompt_tokens
        return {
            "input_tokens": prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": self._segments.tokens if usage is None else usage.completion_tokens,
        }


def _events(change: Change) -> Iterator[JsonObject]:
    segment = change.segment
    if change.what == "begin":
        yield _about("content_block_start", segment, content_block=_block(segment, whole=False))
    elif change.what == "more":
        yield _about("content_block_delta", segment, delta=_delta(segment, change.text))
    else:
        if segment.kind == "reasoning":
            signed = {"type": "signature_delta", "signature": _signature(segment.text)}
            yield _about("content_block_delta", segment, delta=signed)
        yield _about("content_block_stop", segment)


def _about(type: str, segment: Segment, **fields: Any) -> JsonObject:
    return {"type": type, "index": segment.index, **fields}


def _delta(segment: Segment, text: str) -> JsonObject:
    if segment.kind == "call":
        return {"type": "input_json_delta", "partial_json": text}
    if segment.kind == "reasoning":
        return {"type": "thinking_delta", "thinking": text}
    return {"type": "text_delta", "text": text}


def _block(segment: Segment, *, whole: bool) -> JsonObject:
    text = segment.text if whole else ""
    if segment.kind == "call":
        return {"type": "tool_use", "id": segment.id, "name": segment.name, "input": _arguments(text)}
    if segment.kind == "reasoning":
        return {"type": "thinking", "thinking": text, "signature": _signature(text) if whole else ""}
    return {"type": "text", "text": text}


def _arguments(text: str) -> JsonObject:
    """The input of a call; of one that was cut off by the limit there is none, and the stop reason says so."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _signature(text: str) -> str:
    """What clients send back with thinking: a digest, nothing secret. Thinking is taken back without it too."""
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()

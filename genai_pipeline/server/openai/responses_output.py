"""The items of a response and the events of its stream, from the changes of an answer's segments."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.server.openai.logprobs import BytesOf, chat_logprobs
from genai_pipeline.server.segments import Change, Kind, Segment

JsonObject = dict[str, Any]

_PREFIXES: Final[Mapping[Kind, str]] = {"reasoning": "rs", "text": "msg", "call": "fc"}
_DELTAS: Final[Mapping[Kind, str]] = {
    "reasoning": "response.reasoning_text",
    "text": "response.output_text",
    "call": "response.function_call_arguments",
}


class OutputItems:
    """Items by segment; each has an id of its own, the same in the stream and in the response."""

    def __init__(self, bytes_of: BytesOf, *, scored: bool) -> None:
        """``scored``: texts have log probabilities."""
        self._bytes_of = bytes_of
        self._scored = scored
        self._ids: list[str] = []

    def items(self, segments: list[Segment], status: str) -> list[JsonObject]:
        """All items of the response; ``status`` is that of the last one."""
        last = len(segments) - 1
        return [
            self._item(segment, status if segment.index == last else "completed", whole=True) for segment in segments
        ]

    def events(self, change: Change, status: str) -> Iterator[JsonObject]:
        """The events of a change, without their numbers; ``status`` is that of an item that ends."""
        segment = change.segment
        if change.what == "begin":
            self._ids.append(f"{_PREFIXES[segment.kind]}_{secrets.token_hex(24)}")
            yield _event("response.output_item.added", segment, item=self._item(segment, "in_progress"))
            if segment.kind != "call":
                yield self._about(segment, "response.content_part.added", part=self._part(segment, whole=False))
        elif change.what == "more":
            yield self._about(segment, f"{_DELTAS[segment.kind]}.delta", delta=change.text, **self._scores(change))
        else:
            yield from self._ended(segment, status)

    def _ended(self, segment: Segment, status: str) -> Iterator[JsonObject]:
        done = f"{_DELTAS[segment.kind]}.done"
        if segment.kind == "call":
            yield self._about(segment, done, arguments=segment.text, name=segment.name)
        else:
            yield self._about(segment, done, text=segment.text, **self._all_scores(segment))
            yield self._about(segment, "response.content_part.done", part=self._part(segment))
        yield _event("response.output_item.done", segment, item=self._item(segment, status, whole=True))

    def _about(self, segment: Segment, type: str, **fields: Any) -> JsonObject:
        place = {} if segment.kind == "call" else {"content_index": 0}
        return {**_event(type, segment, item_id=self._ids[segment.index]), **place, **fields}

    def _item(self, segment: Segment, status: str, *, whole: bool = False) -> JsonObject:
        item: JsonObject = {"id": self._ids[segment.index], "status": status}
        if segment.kind == "call":
            call = {"call_id": segment.id, "name": segment.name, "arguments": segment.text if whole else ""}
            return {"type": "function_call", **item, **call}
        content = [self._part(segment)] if whole else []
        if segment.kind == "reasoning":
            return {"type": "reasoning", **item, "summary": [], "content": content}
        return {"type": "message", **item, "role": "assistant", "content": content}

    def _part(self, segment: Segment, *, whole: bool = True) -> JsonObject:
        text = segment.text if whole else ""
        if segment.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        scores = self._all_scores(segment)["logprobs"] if whole else []
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": scores}

    def _scores(self, change: Change) -> JsonObject:
        if change.segment.kind != "text":
            return {}
        return {"logprobs": chat_logprobs(change.scores, self._bytes_of)["content"] if self._scored else []}

    def _all_scores(self, segment: Segment) -> JsonObject:
        return self._scores(Change("end", segment, scores=tuple(segment.scores)))


def _event(type: str, segment: Segment, **fields: Any) -> JsonObject:
    return {"type": type, "output_index": segment.index, **fields}

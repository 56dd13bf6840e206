"""Parts of an answer as they come out of its parser, and tool calls put together from their pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from genai_pipeline.types import ToolCall, ToolCallDelta


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """What a piece of generated text adds to an answer."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCallDelta, ...] = ()


NOTHING: Final = AnswerPart()


def join_parts(parts: Iterable[AnswerPart]) -> tuple[str, str, tuple[ToolCall, ...]]:
    """Text, reasoning and tool calls of an answer from all its parts."""
    parts = list(parts)
    deltas = [delta for part in parts for delta in part.tool_calls]
    return "".join(part.text for part in parts), "".join(part.reasoning for part in parts), join_calls(deltas)


def join_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCall, ...]:
    """Whole calls from the pieces of a stream, in order, without those that were withdrawn."""
    heads: dict[int, ToolCallDelta] = {}
    arguments: dict[int, list[str]] = {}
    for delta in deltas:
        if delta.withdrawn:
            heads.pop(delta.index, None)
            continue
        heads.setdefault(delta.index, delta)
        arguments.setdefault(delta.index, []).append(delta.arguments)
    return tuple(
        ToolCall(head.id or "", head.name or "", "".join(arguments[index])) for index, head in sorted(heads.items())
    )


def merged(deltas: Sequence[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """The pieces with neighbours of one call joined, so that a step gives few."""
    kept: list[ToolCallDelta] = []
    for delta in deltas:
        last = kept[-1] if kept else None
        joinable = last is not None and last.index == delta.index and delta.id is None and not delta.withdrawn
        if joinable and last is not None and last.id is None and not last.withdrawn:
            kept[-1] = ToolCallDelta(delta.index, arguments=last.arguments + delta.arguments)
        else:
            kept.append(delta)
    return tuple(kept)

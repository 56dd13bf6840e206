"""Tools, and a parser that is fed in pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from genai_pipeline.parsing.call_stream import CallStream
from genai_pipeline.parsing.parts import AnswerPart, join_parts
from genai_pipeline.parsing.registry import FORMATS
from genai_pipeline.preprocess.tools import read_tool_use

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "metric": {"type": "boolean"},
        "share": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "more": {"type": "object"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "any_of_it", "parameters": {}}},
]

Outcome = tuple[str, list[tuple[str, str]]]


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    """The text cut at some of its indices."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in itertools.pairwise(places)]


def stream(format: str, pieces: Sequence[str], **options: Any) -> list[AnswerPart]:
    """The parts that a stream of calls gives for pieces of text, the last one at the end of them."""
    use = read_tool_use(options.pop("tools", TOOLS), **options)
    assert use is not None
    ids = itertools.count()
    parser = CallStream(FORMATS[format], use, lambda: f"id{next(ids)}")
    parts = [AnswerPart(text, "", deltas) for text, deltas in map(parser.push, pieces)]
    text, deltas = parser.finish()
    return [*parts, AnswerPart(text, "", deltas)]


def outcome(format: str, pieces: Sequence[str], **options: Any) -> Outcome:
    """Text, and name and arguments of each call."""
    text, _, calls = join_parts(stream(format, pieces, **options))
    return text, [(call.name, call.arguments) for call in calls]


@pytest.fixture
def parse() -> Callable[..., Outcome]:
    """``parse(format, pieces, **tool options)``: text and calls."""
    return outcome


@pytest.fixture
def parts() -> Callable[..., list[AnswerPart]]:
    """``parts(format, pieces, **tool options)``: what comes out, piece by piece."""
    return stream


@pytest.fixture
def cut() -> Callable[[str, Sequence[int]], list[str]]:
    """``cut(text, indices)``: the text in pieces."""
    return pieces_of


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    """Three tools: with a schema, without arguments, with any."""
    return TOOLS

"""What /stats shows: of the last answer, of the chat, and of the engine's memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genai_pipeline.cli.answers import stats_text

if TYPE_CHECKING:
    from genai_pipeline.cli.chat.reply import Reply
    from genai_pipeline.types import Timings, Usage


@dataclass(slots=True)
class Tally:
    """Tokens of all answers of a chat."""

    replies: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    last: tuple[Usage | None, Timings | None] = (None, None)

    def add(self, reply: Reply) -> None:
        """One more answer; one that was stopped has no counts."""
        self.replies += 1
        self.last = (reply.usage, reply.timings)
        if reply.usage is not None:
            self.prompt += reply.usage.prompt_tokens
            self.cached += reply.usage.cached_tokens
            self.completion += reply.usage.completion_tokens


def figures(tally: Tally, stats: Mapping[str, Any], tokens: int, context_length: int) -> Iterator[Sequence[str]]:
    """Rows of a name and what is measured; what is not is left out."""
    if last := stats_text(*tally.last):
        yield "last answer", last
    if tally.replies:
        counts = f"{tally.prompt} prompt tokens ({tally.cached} cached), {tally.completion} completion tokens"
        yield "this chat", f"{tally.replies} answer{'s' * (tally.replies > 1)}, {counts}"
    yield "context", f"{tokens} of {context_length} tokens"
    pages = stats.get("pages", {})
    yield from _pages("state in use", pages.get("arena", {}))
    yield from _kept(pages.get("host", {}))
    yield "memory", f"{_size(_resident())} of this process"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def _pages(name: str, arena: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    if {"used", "free"} <= arena.keys():
        resident = f", {_size(arena['resident_bytes'])}" if "resident_bytes" in arena else ""
        yield name, f"{arena['used']} of {arena['used'] + arena['free']} pages of 16 tokens{resident}"


def _kept(host: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    if {"used", "bytes"} <= host.keys():
        bound = f" of {_size(host['budget_bytes'])}" if "budget_bytes" in host else ""
        yield "state kept", f"{host['used']} pages, {_size(host['bytes'])}{bound}"


def _resident() -> int:
    """Bytes of memory that this process occupies."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def _size(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"

"""Events of a whole request folded into its result."""

from __future__ import annotations

from collections.abc import Iterable

from genai_pipeline.types import Choice, Event, Result, Timings, Usage


def collect_result(events: Iterable[Event], n: int) -> Result:
    """The result of a request from its events. Raises the request's own error when its one choice failed."""
    texts: list[list[str]] = [[] for _ in range(n)]
    tokens: list[list[int]] = [[] for _ in range(n)]
    ends: list[Event | None] = [None] * n
    last = Event()
    for event in events:
        texts[event.index].append(event.text)
        if event.token is not None:
            tokens[event.index].append(event.token)
        if event.finish_reason is not None:
            ends[event.index] = last = event
    if last.error is not None and n == 1:
        raise last.error
    choices = tuple(_choice(i, "".join(texts[i]), tokens[i], ends[i] or last) for i in range(n))
    return Result(choices, last.usage or Usage(0, 0), last.timings or Timings(), last.outputs or {}, last.notes)


def _choice(index: int, text: str, tokens: list[int], end: Event) -> Choice:
    assert end.finish_reason is not None
    return Choice(index, text, tuple(tokens), end.finish_reason, end.error)

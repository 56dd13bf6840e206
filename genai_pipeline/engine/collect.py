"""Events of a whole request folded into its result."""

from __future__ import annotations

from collections.abc import Iterable

from genai_pipeline.types import Choice, Event, Result, Timings, Usage


def collect_result(events: Iterable[Event]) -> Result:
    """The result of a request from its events. Raises the error that ended the request."""
    texts: dict[int, list[str]] = {}
    tokens: dict[int, list[int]] = {}
    ends: dict[int, Event] = {}
    last = Event()
    for event in events:
        texts.setdefault(event.index, []).append(event.text)
        if event.token is not None:
            tokens.setdefault(event.index, []).append(event.token)
        if event.finish_reason is not None:
            ends[event.index] = last = event
    if last.error is not None:
        raise last.error
    choices = tuple(_choice(i, "".join(texts[i]), tokens.get(i, []), ends[i]) for i in sorted(ends))
    return Result(choices, last.usage or Usage(0, 0), last.timings or Timings(), last.outputs or {}, last.notes)


def _choice(index: int, text: str, tokens: list[int], end: Event) -> Choice:
    assert end.finish_reason is not None
    return Choice(index, text, tuple(tokens), end.finish_reason, end.error)

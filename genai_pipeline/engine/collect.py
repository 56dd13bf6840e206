"""Events of a whole request folded into its result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from genai_pipeline.parsing.parts import join_calls
from genai_pipeline.types import Choice, Event, Result, Timings, TokenLogprobs, ToolCallDelta, Usage


@dataclass(slots=True)
class Answer:
    """What the events of one choice add up to."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    end: Event | None = None

    def add(self, event: Event) -> None:
        """One more event of the choice."""
        self.text.append(event.text)
        self.reasoning.append(event.reasoning)
        self.calls.extend(event.tool_calls)
        if event.token is not None:
            self.tokens.append(event.token)
        if event.logprobs is not None:
            self.logprobs.append(event.logprobs)
        if event.finish_reason is not None:
            self.end = event

    def message(self) -> dict[str, Any]:
        """The choice so far as a turn of a conversation; reasoning does not belong to it."""
        calls = [call.to_dict() for call in join_calls(self.calls)]
        return {"role": "assistant", "content": "".join(self.text), **({"tool_calls": calls} if calls else {})}

    def choice(self, index: int) -> Choice:
        """The choice, once it has ended."""
        assert self.end is not None
        assert self.end.finish_reason is not None
        return Choice(
            index,
            "".join(self.text),
            tuple(self.tokens),
            self.end.finish_reason,
            self.end.error,
            reasoning="".join(self.reasoning),
            tool_calls=join_calls(self.calls),
            logprobs=tuple(self.logprobs) or None,
        )


def collect_result(events: Iterable[Event]) -> Result:
    """The result of a request from its events. Raises the error that ended the request."""
    answers: dict[int, Answer] = {}
    last = Event()
    for event in events:
        answers.setdefault(event.index, Answer()).add(event)
        if event.finish_reason is not None:
            last = event
    if last.error is not None:
        raise last.error
    return Result(
        tuple(answer.choice(index) for index, answer in sorted(answers.items())),
        last.usage or Usage(0, 0),
        last.timings or Timings(),
        last.outputs or {},
        last.notes,
        last.prompt_logprobs,
    )

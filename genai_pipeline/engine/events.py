"""The events of a request: one per token, one that ends each choice, the last of which ends the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from genai_pipeline.types import Event, FinishReason

if TYPE_CHECKING:
    from genai_pipeline.engine.request import RequestState
    from genai_pipeline.engine.sequence import Sequence
    from genai_pipeline.parsing.parts import AnswerPart
    from genai_pipeline.sampling.state import Chosen


def token_event(sequence: Sequence, choice: Chosen, part: AnswerPart) -> Event:
    """A token that joined a choice, with what it releases."""
    return Event(
        index=sequence.choice,
        token=choice.token,
        text=part.text,
        reasoning=part.reasoning,
        tool_calls=part.tool_calls,
        logprobs=choice.logprobs,
    )


def end_token_event(index: int, choice: Chosen) -> Event:
    """The log probabilities of a token that ends a choice, and that is no part of it."""
    return Event(index=index, logprobs=choice.logprobs)


def late_event(index: int, part: AnswerPart) -> Event:
    """What was held back and comes without a token."""
    return Event(index=index, text=part.text, reasoning=part.reasoning, tool_calls=part.tool_calls)


def choice_end(sequence: Sequence, part: AnswerPart) -> Event:
    """The event that ends a choice, with what was held back."""
    assert sequence.finish_reason is not None
    reason: FinishReason = sequence.finish_reason
    stop = sequence.text.stop_string if reason == "stop" else None
    if reason == "stop" and sequence.text.called:
        reason = "tool_calls"
    return replace(late_event(sequence.choice, part), finish_reason=reason, stop_string=stop, error=sequence.error)


def only_end(event: Event) -> Event:
    """The event that ends a choice without what it says, which was said already."""
    return Event(index=event.index, finish_reason=event.finish_reason, stop_string=event.stop_string)


def request_end(event: Event, state: RequestState, outputs: Mapping[str, object]) -> Event:
    """The event that ends a choice, as the one that ends its request too."""
    return replace(
        event,
        usage=state.usage(),
        timings=state.timings(),
        outputs=outputs,
        notes=tuple(state.notes),
        prompt_logprobs=state.prompt_logprobs(),
    )

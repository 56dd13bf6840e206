"""The parser of one answer: generated text in, reasoning, tool calls and the rest out, as it comes."""

from __future__ import annotations

from genai_pipeline.parsing.call_stream import CallStream
from genai_pipeline.parsing.parts import NOTHING, AnswerPart
from genai_pipeline.parsing.reasoning import ReasoningSplitter


class AnswerParser:
    """Tells the parts of one answer apart; not thread-safe. At least one of its two halves is there."""

    def __init__(self, reasoning: ReasoningSplitter | None, calls: CallStream | None) -> None:
        self._reasoning = reasoning
        self._calls = calls

    @property
    def in_reasoning(self) -> bool:
        """Whether the answer so far ends inside reasoning."""
        return self._reasoning is not None and self._reasoning.inside

    @property
    def num_calls(self) -> int:
        """Whole tool calls so far; an answer with any ends for the reason ``tool_calls``."""
        return 0 if self._calls is None else self._calls.num_calls

    @property
    def over(self) -> bool:
        """Whether nothing more is wanted: the one call of a request without parallel calls is whole."""
        return self._calls is not None and self._calls.over

    def push(self, text: str) -> AnswerPart:
        """What one more piece of text adds."""
        if not text:
            return NOTHING
        reasoning, rest = ("", text) if self._reasoning is None else self._reasoning.push(text)
        if self._calls is None:
            return AnswerPart(rest, reasoning)
        if not rest:
            return AnswerPart("", reasoning)
        answer, deltas = self._calls.push(rest)
        return AnswerPart(answer, reasoning, deltas)

    def finish(self) -> AnswerPart:
        """What was held back, at the end of the answer."""
        reasoning, rest = ("", "") if self._reasoning is None else self._reasoning.finish()
        if self._calls is None:
            return AnswerPart(rest, reasoning)
        before, deltas = self._calls.push(rest)
        after, more = self._calls.finish()
        return AnswerPart(before + after, reasoning, (*deltas, *more))

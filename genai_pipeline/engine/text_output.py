"""Text of one sequence as its tokens arrive: detokenised in pieces, cut before the first stop string, told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from genai_pipeline.parsing.answer import AnswerParser
from genai_pipeline.parsing.parts import NOTHING, AnswerPart
from genai_pipeline.preprocess.stop_strings import StopMatcher


class PieceDecoder(Protocol):
    """Turns tokens into text deltas whose concatenation is the decoded whole."""

    def push(self, token: int) -> str:
        """Text that ``token`` completes."""

    def flush(self) -> str:
        """Text held back for want of more tokens."""


class TextOutput:
    """Released text of one sequence, whose parts ``parser`` tells apart; None: all of it is text.

    No character of a stop string is ever released.
    """

    def __init__(self, decoder: PieceDecoder | None, stops: Sequence[str], parser: AnswerParser | None = None) -> None:
        self._decoder = decoder
        self._matcher = StopMatcher(stops) if stops else None
        self._parser = parser
        self._pieces: list[str] = []
        self.stopped = False

    @property
    def called(self) -> bool:
        """Whether the answer calls a tool."""
        return self._parser is not None and self._parser.num_calls > 0

    @property
    def stop_string(self) -> str | None:
        """The stop string that is complete."""
        return None if self._matcher is None else self._matcher.matched

    @property
    def over(self) -> bool:
        """Whether nothing more is wanted: a stop string is complete, or the one call that may come."""
        return self.stopped or (self._parser is not None and self._parser.over)

    @property
    def in_reasoning(self) -> bool:
        """Whether the answer so far ends inside reasoning."""
        return self._parser is not None and self._parser.in_reasoning

    @property
    def text(self) -> str:
        """All text of the answer released so far, without reasoning and calls."""
        return "".join(self._pieces)

    def push(self, token: int) -> AnswerPart:
        """What one more token releases; sets ``stopped`` when a stop string is complete."""
        if self._decoder is None:
            return NOTHING
        return self._part(self._released(self._decoder.push(token)))

    def finish(self) -> AnswerPart:
        """What was held back, at the end of the sequence; nothing after a stop string."""
        text = ""
        if self._decoder is not None and not self.stopped:
            text = self._released(self._decoder.flush())
            if self._matcher is not None and not self.stopped:
                text += self._matcher.flush()
        part = self._part(text)
        if self._parser is None:
            return part
        last = self._parser.finish()
        self._pieces.append(last.text)
        return AnswerPart(part.text + last.text, part.reasoning + last.reasoning, part.tool_calls + last.tool_calls)

    def _released(self, text: str) -> str:
        """Text less what begins a stop string, or all before one that is complete."""
        if self._matcher is not None and text:
            text, self.stopped = self._matcher.push(text)
        return text

    def _part(self, text: str) -> AnswerPart:
        if not text:
            return NOTHING
        part = AnswerPart(text) if self._parser is None else self._parser.push(text)
        if part.text:
            self._pieces.append(part.text)
        return part

"""Text of one sequence as its tokens arrive: detokenised in pieces, cut before the first stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from genai_pipeline.preprocess.stop_strings import StopMatcher


class PieceDecoder(Protocol):
    """Turns tokens into text deltas whose concatenation is the decoded whole."""

    def push(self, token: int) -> str:
        """Text that ``token`` completes."""

    def flush(self) -> str:
        """Text held back for want of more tokens."""


class TextOutput:
    """Released text of one sequence; no character of a stop string is ever released."""

    def __init__(self, decoder: PieceDecoder | None, stops: Sequence[str]) -> None:
        self._decoder = decoder
        self._matcher = StopMatcher(stops) if stops else None
        self._pieces: list[str] = []
        self.stopped = False

    def push(self, token: int) -> str:
        """Text released by one more token; sets ``stopped`` when a stop string is complete."""
        if self._decoder is None:
            return ""
        return self._release(self._decoder.push(token))

    def finish(self) -> str:
        """Text that was held back, at the end of the sequence; nothing after a stop string."""
        if self._decoder is None or self.stopped:
            return ""
        released = self._release(self._decoder.flush())
        if self._matcher is not None and not self.stopped:
            held = self._matcher.flush()
            self._pieces.append(held)
            released += held
        return released

    @property
    def text(self) -> str:
        """All text released so far."""
        return "".join(self._pieces)

    def _release(self, text: str) -> str:
        if self._matcher is not None and text:
            text, self.stopped = self._matcher.push(text)
        if text:
            self._pieces.append(text)
        return text

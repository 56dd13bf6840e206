"""Stop strings in a stream of text: found wherever the text is cut, and never shown, not even in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.errors import OptionError


@dataclass(slots=True)
class _Progress:
    """How much of one stop string the text so far ends with (Knuth, Morris and Pratt)."""

    stop: str
    borders: tuple[int, ...]  # borders[n]: the longest proper prefix of stop[:n] that also ends it
    matched: int = 0

    def push(self, character: str) -> bool:
        """Go one character on; true when the stop string is complete."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self.borders[self.matched]
        self.matched += self.stop[self.matched] == character
        return self.matched == len(self.stop)


class StopMatcher:
    """Releases text that can no longer belong to a stop string; not thread-safe, one per sequence.

    The stop string that is complete first wins; of several complete at the same character, the longest. The outcome
    does not depend on how the text is cut into pieces. Work per character is constant on average per stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """Raises OptionError for an empty stop string, which would stop everything."""
        for stop in stops:
            if not isinstance(stop, str) or not stop:
                raise OptionError(f"a stop string must be a text that is not empty, not {stop!r}", param="stop")
        self._progress = [_Progress(stop, _borders(stop)) for stop in dict.fromkeys(stops)]
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """Text released by ``text``, and whether a stop string is complete; nothing is released after that."""
        if self.matched is not None:
            return "", True
        for index, character in enumerate(text):
            complete = [each.stop for each in self._progress if each.push(character)]
            if complete:
                self.matched = max(complete, key=len)
                seen = self._held + text[: index + 1]
                self._held = ""
                return seen[: len(seen) - len(self.matched)], True
        seen = self._held + text
        keep = max((each.matched for each in self._progress), default=0)
        self._held = seen[len(seen) - keep :]
        return seen[: len(seen) - keep], False

    def flush(self) -> str:
        """Text held back, at the end of the stream; empty when a stop string was found."""
        held, self._held = self._held, ""
        return held


def _borders(stop: str) -> tuple[int, ...]:
    borders = [0, 0]
    for character in stop[1:]:
        length = borders[-1]
        while length and stop[length] != character:
            length = borders[length]
        borders.append(length + (stop[length] == character))
    return tuple(borders)

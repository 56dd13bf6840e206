"""Reasoning told apart from the answer in a stream of text.

Reasoning stands at the beginning of an answer, behind its opening text or, where the prompt has opened it, without.
It ends at the closing text; if that never comes, all of it is reasoning. Later such texts are the answer's own words.
Nothing is left out but the two texts themselves, white space before the first, and two line ends after the second.
"""

from __future__ import annotations

from typing import Final

from genai_pipeline.parsing.chars import WHITE
from genai_pipeline.parsing.tags import begins_tag, tag_start
from genai_pipeline.preprocess.reasoning_tags import ReasoningTags

LINE_ENDS: Final = 2  # behind reasoning, that are neither reasoning nor answer


class ReasoningSplitter:
    """Splits one answer; the outcome does not depend on how its text is cut into pieces."""

    def __init__(self, tags: ReasoningTags, *, opened: bool) -> None:
        """``opened``: whether the prompt ends inside reasoning."""
        self._tags = tags
        self._held = ""
        self._begun = opened  # whether the beginning of the answer is told apart
        self._line_ends = 0  # how many more may be left out
        self.inside = opened

    def push(self, text: str) -> tuple[str, str]:
        """Reasoning and answer that are known by one more piece of text."""
        self._held += text
        if not self._begun and not self._begin():
            return "", ""
        if not self.inside:
            return "", self._answer()
        position = self._held.find(self._tags.close)
        if position < 0:
            return self._take(tag_start(self._held, (self._tags.close,))), ""
        reasoning = self._take(position)
        self._take(len(self._tags.close))
        self.inside = False
        self._line_ends = LINE_ENDS
        return reasoning, self._answer()

    def finish(self) -> tuple[str, str]:
        """What was held back, at the end of the answer."""
        rest = self._take(len(self._held))
        return (rest, "") if self.inside else ("", rest)

    def _begin(self) -> bool:
        """Whether it is told by now how the answer begins; white space before an opening text is no answer."""
        start = self._held.lstrip(WHITE)
        if start.startswith(self._tags.open):
            self._held = start[len(self._tags.open) :]
            self.inside = self._begun = True
        elif start and not begins_tag(start, (self._tags.open,)):
            self._begun = True
        return self._begun

    def _answer(self) -> str:
        """The answer that is held, less line ends behind the reasoning."""
        while self._line_ends and self._held.startswith("\n"):
            self._take(1)
            self._line_ends -= 1
        if self._held:
            self._line_ends = 0
        return self._take(len(self._held))

    def _take(self, end: int) -> str:
        taken, self._held = self._held[:end], self._held[end:]
        return taken

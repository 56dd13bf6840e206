"""A bound on reasoning: when it is used up, the closing text is what comes next."""

from __future__ import annotations


class ReasoningBudget:
    """Counts the tokens of one answer's reasoning and says when its end is forced, token by token."""

    def __init__(self, limit: int, close: tuple[int, ...], *, inside: bool) -> None:
        """``close``: the tokens of the closing text; ``inside``: whether the answer begins inside reasoning."""
        self._left = limit
        self._close = close
        self._inside = inside
        self._forced = 0  # of the closing tokens, how many have been forced
        self.active = inside and limit <= 0  # whether the end is being forced

    @property
    def forced(self) -> int | None:
        """The token that must be chosen next; None: any."""
        return self._close[self._forced] if self.active else None

    def accept(self, *, inside: bool) -> None:
        """One more token has joined the answer; ``inside``: whether the answer is inside reasoning now."""
        if self.active:
            self._forced += 1
            self.active = inside and self._forced < len(self._close)
        elif inside:
            self._left -= self._inside
            self.active = self._left <= 0 and self._forced == 0
        self._inside = inside

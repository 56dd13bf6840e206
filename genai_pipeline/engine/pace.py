"""How many prompt tokens may run beside decode rows, so that these keep their pace."""

from __future__ import annotations

GAP = 1.7  # a prefill run beside decode rows may take this many decode steps
SMOOTHING = 0.3  # weight of the newest measurement
SMALLEST = 12  # tokens of the smallest chunk: smaller ones cost more than they spare


class Pace:
    """Keeps an eye on what decode steps and prompt tokens take, in seconds."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._step: float | None = None
        self._token: float | None = None

    def decode_took(self, seconds: float) -> None:
        """A decode run took this long."""
        self._step = _smooth(self._step, seconds)

    def prefill_took(self, num_tokens: int, seconds: float) -> None:
        """A prefill run of so many tokens took this long; a few tokens say nothing of many."""
        if num_tokens < SMALLEST and self._token is not None:
            return
        self._token = _cautious(self._token, seconds / num_tokens)

    @property
    def prefill_seconds(self) -> float | None:
        """Seconds per prompt token, None before the first prefill."""
        return self._token

    def prefill_beside(self) -> int:
        """Prompt tokens for a step that also decodes."""
        if self._step is None or self._token is None:
            return min(self._largest, 4 * SMALLEST)
        return min(self._largest, max(SMALLEST, int(GAP * self._step / self._token)))


def _smooth(old: float | None, new: float) -> float:
    return new if old is None else old + SMOOTHING * (new - old)


def _cautious(old: float | None, new: float) -> float:
    """Follows a rise at once, as of chunks on a growing past, and a fall slowly."""
    return new if old is None else max(new, _smooth(old, new))

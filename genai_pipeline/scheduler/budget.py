"""Bounds of the scheduler: rows, pages, tokens per step, and what preempting costs."""

from __future__ import annotations

from dataclasses import dataclass

PAGE_TOKENS = 16


def pages_for(tokens: int) -> int:
    """Pages that hold ``tokens`` tokens."""
    return -(-tokens // PAGE_TOKENS)


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one loop's running sequences and of its prefill runs.

    ``prefill_tokens``: prompt tokens per step while nothing decodes. ``prefill_batch``: prompts of at most this many
    tokens start together in one padded run, unless they are longer than ``prefill_tokens``; 0 where the loop's state
    does not allow that.
    """

    max_rows: int = 1
    num_pages: int = 1 << 40
    prefill_tokens: int = 512
    prefill_batch: int = 0

    def __post_init__(self) -> None:
        assert self.max_rows > 0
        assert self.num_pages > 0
        assert self.prefill_tokens > 2


@dataclass(frozen=True, slots=True)
class Costs:
    """What computing and copying the state of one token takes, in nanoseconds; measured by the engine."""

    prefill: int = 2_000_000
    copy: int = 40_000

    @property
    def swaps(self) -> bool:
        """Whether keeping state outside, and taking it back, is the cheaper preemption."""
        return 2 * self.copy < self.prefill

"""Plans each engine step from counters and budgets: decode rows first, then prefill chunks. Integers only.

The scheduler knows sequences by id, how many tokens each has and how many of them are computed; it never sees
tokens, arrays or graphs, so that it can be tested without a model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from genai_pipeline.scheduler.plan import Run, Span, StepPlan


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one step: rows that may run at once and prompt tokens per prefill run."""

    max_rows: int = 1
    prefill_tokens: int = 512

    def __post_init__(self) -> None:
        assert self.max_rows > 0
        assert self.prefill_tokens > 2


@dataclass(slots=True)
class _Tracked:
    """Counters of one sequence."""

    id: int
    loop: str
    num_tokens: int  # prompt and chosen tokens
    num_computed: int = 0  # tokens whose state is committed


class Scheduler:
    """First come, first served over a bounded number of rows."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._waiting: deque[_Tracked] = deque()
        self._running: dict[int, _Tracked] = {}

    @property
    def num_waiting(self) -> int:
        """Sequences that hold nothing yet."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that own a row."""
        return len(self._running)

    def submit(self, sequence: int, loop: str, num_tokens: int) -> None:
        """Queue a sequence of a decode loop with its prompt length."""
        assert num_tokens > 0
        self._waiting.append(_Tracked(sequence, loop, num_tokens))

    def advance(self, sequence: int, num_computed: int, num_tokens: int) -> None:
        """Record what a committed run brought: computed tokens, and all tokens with those chosen."""
        tracked = self._running[sequence]
        assert tracked.num_computed <= num_computed <= num_tokens
        tracked.num_computed, tracked.num_tokens = num_computed, num_tokens

    def finish(self, sequence: int) -> None:
        """Forget a sequence, whether it runs or waits."""
        if self._running.pop(sequence, None) is None:
            self._waiting = deque(tracked for tracked in self._waiting if tracked.id != sequence)

    def plan(self) -> StepPlan:
        """The next step; empty when nothing can run."""
        admitted = tuple(self._admit())
        runs = [*self._decode_runs(), *self._prefill_runs()]
        return StepPlan(tuple(runs), admitted)

    def _admit(self) -> Iterator[int]:
        while self._waiting and len(self._running) < self._budget.max_rows:
            tracked = self._waiting.popleft()
            self._running[tracked.id] = tracked
            yield tracked.id

    def _decode_runs(self) -> Iterator[Run]:
        spans: dict[str, list[Span]] = {}
        for tracked in self._running.values():
            if tracked.num_computed and tracked.num_tokens - tracked.num_computed == 1:
                span = Span(tracked.id, tracked.num_computed, tracked.num_tokens, samples=True)
                spans.setdefault(tracked.loop, []).append(span)
        for loop, members in spans.items():
            yield Run("decode", loop, tuple(members))

    def _prefill_runs(self) -> Iterator[Run]:
        left = self._budget.prefill_tokens
        for tracked in self._running.values():
            todo = tracked.num_tokens - tracked.num_computed
            count = 0 if tracked.num_computed and todo == 1 else chunk_size(todo, left)
            if not count:
                continue
            left -= count
            stop = tracked.num_computed + count
            span = Span(tracked.id, tracked.num_computed, stop, samples=stop == tracked.num_tokens)
            yield Run("prefill", tracked.loop, (span,))


def chunk_size(todo: int, budget: int) -> int:
    """Tokens of the next prefill chunk: at most ``budget``, and never so that one single token is left over.

    A run of one token rounds differently from a longer one, so a chunk has one token only if the prompt has.
    Gives 0 when no such chunk fits.
    """
    if todo <= budget:
        return todo
    size = budget - 1 if todo - budget == 1 else budget
    return size if size > 1 else 0

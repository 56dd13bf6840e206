"""How prompts are cut into prefill runs."""

from __future__ import annotations

from collections.abc import Sequence

from genai_pipeline.scheduler.plan import Span
from genai_pipeline.scheduler.ticket import Tracked


def chunk_size(todo: int, budget: int) -> int:
    """Tokens of the next prefill chunk: at most ``budget``, and never so that one single token is left over.

    A run of one token rounds differently from a longer one, so a chunk has one token only if the prompt has.
    Gives 0 when no such chunk fits.
    """
    if todo <= budget:
        return todo
    size = budget - 1 if todo - budget == 1 else budget
    return size if size > 1 else 0


def prefill_runs(sequences: Sequence[Tracked], *, tokens: int, batch: int, num_decoding: int) -> list[tuple[Span, ...]]:
    """Spans of the prefill runs of a step; ``sequences`` come most important first.

    Prompts of at most ``batch`` tokens are never cut: they start together in one right-padded run, all of them where
    they are as many as the rows that decode and would wait for them, else as many as fit ``tokens``, at least one.
    Longer prompts run in chunks, one run each, within ``tokens``.
    """
    todo = [tracked for tracked in sequences if tracked.todo and not tracked.decoding]
    short = [tracked for tracked in todo if tracked.num_computed == 0 and tracked.num_tokens <= batch]
    together = short if len(short) >= num_decoding else short[: _fitting(short, tokens)]
    runs = [tuple(_span(tracked, tracked.num_tokens) for tracked in together)] if together else []
    left = tokens - sum(tracked.num_tokens for tracked in together)
    for tracked in todo:
        if tracked in short:
            continue
        size = chunk_size(tracked.todo, left)
        if size:
            runs.append((_span(tracked, size),))
            left -= size
    return runs


def _fitting(short: Sequence[Tracked], tokens: int) -> int:
    """How many prompts fit a padded run of so many tokens; at least one."""
    width = 0
    for count, tracked in enumerate(short, 1):
        width = max(width, tracked.num_tokens)
        if width * count > tokens:
            return max(1, count - 1)
    return len(short)


def _span(tracked: Tracked, size: int) -> Span:
    stop = tracked.num_computed + size
    return Span(tracked.ticket.sequence, tracked.num_computed, stop, samples=stop == tracked.num_tokens)

"""How prompts are cut into prefill runs."""

from __future__ import annotations

from collections.abc import Sequence

from genai_pipeline.scheduler.plan import Span
from genai_pipeline.scheduler.ticket import WHOLE, Tracked


def chunk_size(todo: int, budget: int) -> int:
    """Tokens of the next prefill chunk: at most ``budget``, and never so that one single token is left over.

    A run of one token rounds differently from a longer one, so a chunk has one token only if the prompt has.
    Gives 0 when no such chunk fits.
    """
    if todo <= budget:
        return todo
    size = budget - 1 if todo - budget == 1 else budget
    return size if size > 1 else 0


def prefill_runs(todo: Sequence[Tracked], *, tokens: int, batch: int, num_decoding: int) -> list[tuple[Span, ...]]:
    """Spans of the prefill runs of a step; ``todo`` are the sequences that prefill, most important first.

    Prompts of at most ``batch`` tokens are short: never cut, they start together in one right-padded run, all of them
    where they are as many as the rows that decode and would wait for them, else as many as fit ``tokens``, at least
    one. Longer prompts run in chunks, one run each, within what is left of ``tokens``; those that are more important
    than every short one come before the short ones, which cannot starve them then.
    """
    short = [t for t in todo if t.num_computed == 0 and t.num_tokens <= batch and _whole(t)]
    before = todo.index(short[0]) if short else len(todo)
    runs, left = _chunks(todo[:before], tokens)
    together = short if len(short) >= num_decoding else short[: _fitting(short, left, least=0 if runs else 1)]
    if together:
        runs.append(tuple(_span(tracked, tracked.num_tokens) for tracked in together))
        left -= sum(tracked.num_tokens for tracked in together)
    later, _ = _chunks([tracked for tracked in todo[before:] if tracked not in short], left)
    return runs + later


def _whole(tracked: Tracked) -> bool:
    """Whether all that a sequence has may run at once."""
    most = tracked.max_chunk
    return most in (None, WHOLE) or (most == 1 and tracked.num_tokens == 1)


def _chunks(long: Sequence[Tracked], tokens: int) -> tuple[list[tuple[Span, ...]], int]:
    """Runs of one chunk each within ``tokens``, and how many tokens are left."""
    runs: list[tuple[Span, ...]] = []
    for tracked in long:
        size = _next_size(tracked, tokens)
        if size > 0:
            runs.append((_span(tracked, size),))
            tokens -= size
    return runs, tokens


def _next_size(tracked: Tracked, tokens: int) -> int:
    """Tokens of the next chunk of a sequence where ``tokens`` are left; none where it is below 1."""
    most = tracked.max_chunk
    if most == WHOLE:
        return tracked.todo if tokens > 0 else 0
    if most == 1:
        return min(1, tokens)
    return chunk_size(tracked.todo, tokens if most is None else min(tokens, most))


def _fitting(short: Sequence[Tracked], tokens: int, least: int) -> int:
    """How many prompts fit a padded run of so many tokens; at least ``least``."""
    width = 0
    for count, tracked in enumerate(short, 1):
        width = max(width, tracked.num_tokens)
        if width * count > tokens:
            return max(least, count - 1)
    return len(short)


def _span(tracked: Tracked, size: int) -> Span:
    stop = tracked.num_computed + size
    return Span(tracked.ticket.sequence, tracked.num_computed, stop, samples=stop == tracked.num_tokens)

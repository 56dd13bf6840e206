"""How prompts are cut into prefill runs."""

from __future__ import annotations

from collections.abc import Iterable

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


def prefill_runs(sequences: Iterable[Tracked], budget: int, batch: int) -> list[tuple[Span, ...]]:
    """Spans of the prefill runs of a step, most important first: ``budget`` tokens, padding of batches included.

    First runs of at most ``batch`` tokens share one run, right-padded; every other chunk runs alone.
    """
    runs: list[tuple[Span, ...]] = []
    together: list[Span] = []
    width = 0
    left = budget
    for tracked in sequences:
        if tracked.decoding or not tracked.todo:
            continue
        if tracked.num_computed == 0 and tracked.num_tokens <= min(batch, budget):
            wider = max(width, tracked.num_tokens)
            cost = wider * (len(together) + 1) - width * len(together)
            if cost <= left:
                together.append(_span(tracked, tracked.num_tokens))
                width, left = wider, left - cost
            continue
        size = chunk_size(tracked.todo, left)
        if size:
            runs.append((_span(tracked, size),))
            left -= size
    return [tuple(together), *runs] if together else runs


def _span(tracked: Tracked, size: int) -> Span:
    stop = tracked.num_computed + size
    return Span(tracked.ticket.sequence, tracked.num_computed, stop, samples=stop == tracked.num_tokens)

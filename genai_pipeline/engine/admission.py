"""Whether a request fits: the context, the package's limits and the whole state pool, before anything is queued.

An explicit limit is never lowered: it fits, or the request is refused with numbers. A request that names none is
capped at what the context or the whole pool could hold, never by the load of the moment, and told so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from genai_pipeline.errors import CapacityError, PromptTooLongError, RequestError
from genai_pipeline.kv.geometry import PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a sequence of a loop: tokens of context, of the whole pool, and the package's own limit.

    ``max_rows``: sequences that run at once; ``num_pages``: pages of the pool. ``shared_by``: sequences that have to
    fit ``pool_tokens`` each, at the same time.
    """

    context_length: int
    pool_tokens: int
    max_new_tokens: int | None
    max_rows: int
    num_pages: int
    shared_by: int = 1

    def shared(self, count: int) -> Bounds:
        """Those of each of ``count`` sequences that wait for each other: one page each is kept free for growth."""
        if count == 1:
            return self
        return replace(self, pool_tokens=max(0, self.num_pages // count - 1) * PAGE_TOKENS, shared_by=count)

    @property
    def pool(self) -> str:
        """The pool's part in messages."""
        for_each = f" for each of {self.shared_by} beams" if self.shared_by > 1 else ""
        return f"the memory given to the cache holds {self.pool_tokens} tokens{for_each}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Tokens a sequence may generate; ``note`` says what capped them, when the request named no limit."""

    max_new_tokens: int
    note: str = ""


def grant(num_prompt: int, asked: int | None, bounds: Bounds) -> Grant:
    """The limit of a sequence. Raises PromptTooLongError, RequestError or CapacityError."""
    _check_prompt(num_prompt, bounds)
    if asked is None:
        return _capped(num_prompt, bounds)
    if bounds.max_new_tokens is not None and asked > bounds.max_new_tokens:
        raise RequestError(
            f"max_new_tokens is {asked}; this package allows at most {bounds.max_new_tokens}", param="max_new_tokens"
        )
    total = num_prompt + asked
    if total > bounds.context_length:
        raise PromptTooLongError(
            f"{num_prompt} prompt tokens and max_new_tokens {asked} make {total}; "
            f"the context holds {bounds.context_length}",
            param="max_new_tokens",
            hint=f"ask for at most {bounds.context_length - num_prompt} tokens, or shorten the prompt",
        )
    if total > bounds.pool_tokens:
        raise CapacityError(
            f"{num_prompt} prompt tokens and max_new_tokens {asked} make {total}; {bounds.pool}",
            hint=f"ask for at most {bounds.pool_tokens - num_prompt} tokens, or give more memory",
        )
    return Grant(asked)


def _check_prompt(num_prompt: int, bounds: Bounds) -> None:
    context = bounds.context_length
    if num_prompt >= context:
        raise PromptTooLongError(
            f"the prompt has {num_prompt} tokens; the context holds {context}, the answer included",
            param="prompt",
            hint=f"shorten the prompt by at least {num_prompt - context + 1} tokens",
        )
    if num_prompt >= bounds.pool_tokens:
        raise CapacityError(
            f"the prompt has {num_prompt} tokens; {bounds.pool}",
            hint="shorten the prompt, or give more memory",
        )


def _capped(num_prompt: int, bounds: Bounds) -> Grant:
    limits = [
        (bounds.context_length - num_prompt, ""),
        (bounds.pool_tokens - num_prompt, f"the memory given to the cache, {bounds.pool_tokens} tokens"),
    ]
    if bounds.max_new_tokens is not None:
        limits.append((bounds.max_new_tokens, ""))
    tokens, by = min(limits)
    return Grant(tokens, f"max_new_tokens was capped at {tokens} by {by}" if by else "")

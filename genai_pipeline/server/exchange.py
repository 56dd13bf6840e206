"""What is known of one request while it is under way, for its log line and for metrics; ``request.state`` has it."""

from __future__ import annotations

import re
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from genai_pipeline.types import Event, Usage

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(slots=True)
class Exchange:
    """One request and its response so far. ``held`` is closed when the response has ended, however it ends."""

    id: str
    method: str
    path: str
    started: float = field(default_factory=time.perf_counter)
    held: AsyncExitStack = field(default_factory=AsyncExitStack)
    route: str = "unmatched"
    status: int = 0
    client: str | None = None  # its address
    caller: str | None = None
    model: str | None = None
    usage: Usage | None = None
    prompted: int = 0  # tokens of prompts that were asked
    generated: int = 0  # tokens seen so far
    first_token: float | None = None  # seconds
    error: str | None = None

    @property
    def seconds(self) -> float:
        """Since the request came."""
        return time.perf_counter() - self.started

    def note(self, event: Event) -> None:
        """Take note of an event of the answer."""
        if event.token is not None:
            self.generated += 1
            if self.first_token is None:
                self.first_token = self.seconds
        if event.usage is not None:
            self.usage = event.usage if self.usage is None else _sum(self.usage, event.usage)
        if event.error is not None:
            self.error = getattr(event.error, "code", type(event.error).__name__)

    @property
    def spent(self) -> int:
        """Tokens that the request cost: those of prompt and answer, or as many as came before it was given up."""
        usage = self.usage
        counted = 0 if usage is None else usage.prompt_tokens + usage.completion_tokens
        return max(counted, self.prompted + self.generated)


def _sum(one: Usage, other: Usage) -> Usage:
    """The usage of two answers to one request."""
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.cached_tokens + other.cached_tokens,
    )


def request_id(given: str | None) -> str:
    """The id of a request: the client's own where it is one, else a fresh one."""
    return given if given is not None and _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"

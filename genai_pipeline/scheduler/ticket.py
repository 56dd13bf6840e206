"""What the scheduler knows of a sequence: counters, priority, and whom it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from genai_pipeline.scheduler.budget import pages_for


class Priority(IntEnum):
    """How much a request matters; waiting raises it in time."""

    LOW = 0
    NORMAL = 1
    HIGH = 2


WHOLE: Final = 1 << 62  # tokens of a run that takes all there are, whatever the budget


@dataclass(frozen=True, slots=True)
class Chunks:
    """Most tokens that the first prefill run of a sequence and later ones take; None: what the budget allows.

    A run with a limit is its own. With ``WHOLE`` it takes all tokens there are at once.
    """

    first: int | None = None
    later: int | None = None


ANY_CHUNKS: Final = Chunks()


@dataclass(frozen=True, slots=True)
class Ticket:
    """A sequence that asks to run."""

    sequence: int
    loop: str
    num_tokens: int  # prompt tokens
    max_tokens: int  # most tokens it may ever have, prompt included
    priority: Priority = Priority.NORMAL
    key: str = ""  # whose share of the machine it uses, for fair sharing
    after: int | None = None  # a sequence whose prompt must be computed first: this one forks it
    extra_pages: int = 0  # that it takes besides those of its tokens, from its entry on
    chunks: Chunks = ANY_CHUNKS


@dataclass(slots=True)
class Tracked:
    """Counters of one sequence, waiting or running; ``num_pages`` are the pages it holds."""

    ticket: Ticket
    arrival: int  # order of submission
    since: int  # step of submission, from which waiting counts
    num_tokens: int  # prompt and chosen tokens
    num_computed: int = 0  # tokens whose state is committed
    num_pages: int = 0
    num_drafts: int = 0  # tokens to verify with the next decode step
    draft_pages: int = 0  # of the pages it holds, those taken for the drafts of a run that is under way

    def pages(self, num_tokens: int) -> int:
        """Pages that it holds with so many tokens."""
        return pages_for(num_tokens) + self.ticket.extra_pages

    @property
    def todo(self) -> int:
        """Tokens that are known and not computed."""
        return self.num_tokens - self.num_computed

    @property
    def max_chunk(self) -> int | None:
        """Most tokens of its next prefill run; None: what the budget allows."""
        chunks = self.ticket.chunks
        return chunks.later if self.num_computed else chunks.first

    @property
    def decoding(self) -> bool:
        """Whether all but the last token are computed."""
        return self.num_computed > 0 and self.todo == 1

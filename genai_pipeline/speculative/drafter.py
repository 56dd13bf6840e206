"""What drafts the next tokens of sequences: the protocol of all kinds of drafters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Target(Protocol):
    """A sequence that drafts are made for. Its ``tokens`` (prompt and answer so far) only ever grow at the end."""

    @property
    def id(self) -> int:
        """Names the sequence, from its first token to its last."""

    @property
    def tokens(self) -> Sequence[int]:
        """All its tokens. The last one has not been run yet."""


class Source(NamedTuple):
    """A kind of drafts whose acceptance is learned apart; ``prior`` is what is expected of it before anything is."""

    name: str
    prior: float


class Want(NamedTuple):
    """Up to ``most`` tokens are wanted to follow those of ``target``."""

    target: Target
    most: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts for each want, in order; an empty one where there is nothing to propose.

    ``seconds`` is what drafting took, ``catching_up`` what came before it: running tokens that were chosen while
    nothing was drafted. The first run over a prompt counts for neither.
    """

    drafts: tuple[tuple[int, ...], ...]
    seconds: float = 0.0
    catching_up: float = 0.0


class Drafter(Protocol):
    """Drafts for the sequences of one loop; belongs to the engine thread.

    It finds out by itself how far a sequence has come since it was last asked, so nobody tells it of single tokens.
    """

    @property
    def most(self) -> int:
        """Most tokens it drafts at once."""

    @property
    def free(self) -> bool:
        """Whether a draft costs next to nothing, so that only its verification has to pay."""

    def source(self, target: Target) -> Source | None:
        """What kind of draft it could make for a sequence now; None: it has nothing to propose."""

    def propose(self, wants: Sequence[Want]) -> Proposal:
        """Drafts for sequences that have a source."""

    def forget(self, sequence: int) -> None:
        """A sequence has ended. Harmless when it is not known."""

"""Changes of single logits: bias, bans, and penalties on tokens that occurred, kept up to date token by token.

Each works in float64 on the tokens it concerns and rounds to float32 when it writes back. Formulas and sources are in
docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.sampling.options import GenerationOptions

Logits = NDArray[np.float32]
Ids = NDArray[np.int64]

SMALLEST_PENALTY: Final = 1e-30  # logits divided by it stay finite in float32; a smaller one could not do more


class Processor(Protocol):
    """Changes one row of logits, by what the sequence had so far."""

    def accept(self, token: int) -> None:
        """A token joins the output."""

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""


class LogitBias:
    """Adds to the logits of given tokens."""

    __slots__ = ("_amounts", "_ids")

    def __init__(self, bias: Mapping[int, float]) -> None:
        self._ids = np.array(list(bias), np.int64)
        self._amounts = np.array(list(bias.values()), np.float64)

    def accept(self, token: int) -> None:
        """The bias depends on no token."""

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        row[self._ids] = row[self._ids] + self._amounts


class BannedTokens:
    """Tokens that are never chosen."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = np.array(ids, np.int64)

    def accept(self, token: int) -> None:
        """The bans depend on no token."""

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        row[self._ids] = -np.inf


class TokenCounts:
    """Distinct tokens and how often each occurred, as arrays that grow in place."""

    __slots__ = ("_counts", "_ids", "_most", "_slots")

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        ids, counts = np.unique(np.array(tokens, np.int64), return_counts=True)
        self._slots = {token: slot for slot, token in enumerate(ids.tolist())}
        self._most = max(self._slots, default=-1)
        room = np.zeros(len(ids) + 64, np.int64)
        self._ids, self._counts = np.concatenate([ids, room]), np.concatenate([counts, room])

    def add(self, token: int) -> None:
        """One more occurrence of a token."""
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids, self._counts = (np.concatenate([a, np.zeros_like(a)]) for a in (self._ids, self._counts))
        self._ids[slot] = token
        self._counts[slot] += 1
        self._most = max(self._most, token)

    def below(self, size: int) -> tuple[Ids, Ids]:
        """The distinct tokens below ``size`` and their counts: a prompt may have tokens that a model cannot choose."""
        count = len(self._slots)
        ids, counts = self._ids[:count], self._counts[:count]
        if self._most < size:
            return ids, counts
        inside = ids < size
        return ids[inside], counts[inside]


class RepetitionPenalty:
    """Divides positive logits and multiplies others, once for each distinct token of prompt and output."""

    __slots__ = ("_penalty", "_seen")

    def __init__(self, options: GenerationOptions, prompt: Sequence[int]) -> None:
        self._penalty = max(options.repetition_penalty, SMALLEST_PENALTY)
        self._seen = TokenCounts(prompt)

    def accept(self, token: int) -> None:
        """A token joins the output."""
        self._seen.add(token)

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        ids, _ = self._seen.below(len(row))
        logits = row[ids].astype(np.float64)
        row[ids] = np.where(logits > 0, logits / self._penalty, logits * self._penalty)


class OutputPenalty:
    """Subtracts from the logits of tokens of the output: once for presence, and for each occurrence for frequency."""

    __slots__ = ("_frequency", "_output", "_presence")

    def __init__(self, options: GenerationOptions) -> None:
        self._frequency, self._presence = options.frequency_penalty, options.presence_penalty
        self._output = TokenCounts()

    def accept(self, token: int) -> None:
        """A token joins the output."""
        self._output.add(token)

    def apply(self, row: Logits) -> None:
        """Change one row of logits in place."""
        ids, counts = self._output.below(len(row))
        row[ids] = row[ids] - (counts * self._frequency + self._presence)

"""Rows that share one run of a loop body: which sequences, how much past, how many new tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.scheduler.plan import Span


class Batch(NamedTuple):
    """b rows; row i runs tokens [starts[i], stops[i]) of its sequence. ``width`` is S, the most new tokens of a row."""

    sequences: tuple[Sequence, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    samples: tuple[bool, ...]
    width: int

    @staticmethod
    def of(spans: Iterable[Span], sequences: tuple[Sequence, ...]) -> Batch:
        """The batch of some spans of a planned run."""
        _, starts, stops, samples = zip(*spans, strict=True)
        return Batch(sequences, starts, stops, samples, max(map(int.__sub__, stops, starts)))

    def only(self, index: int) -> Batch:
        """The batch of one of its rows alone."""
        i = slice(index, index + 1)
        width = self.stops[index] - self.starts[index]
        return Batch(self.sequences[i], self.starts[i], self.stops[i], self.samples[i], width)

    @property
    def size(self) -> int:
        """Number of rows, b."""
        return len(self.sequences)

    @property
    def rows(self) -> tuple[int, ...]:
        """State rows of the sequences."""
        return tuple([sequence.row for sequence in self.sequences])

    @property
    def counts(self) -> tuple[int, ...]:
        """New tokens per row."""
        return tuple([stop - start for start, stop in zip(self.starts, self.stops, strict=True)])

    def logit_rows(self) -> list[int]:
        """Flattened index, in [0, b*S), of the last new token of each row that samples."""
        return [
            i * self.width + stop - start - 1
            for i, (start, stop, samples) in enumerate(zip(self.starts, self.stops, self.samples, strict=True))
            if samples
        ]

"""Rows that share one run of a loop body: which sequences, how much past, how many new tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.scheduler.plan import Span


class Batch(NamedTuple):
    """b rows; row i runs tokens [starts[i], stops[i]) of its sequence. ``width`` is S, the most new tokens of a row.

    The last ``drafts[i]`` of them are drafts. A row that ``samples`` chooses a token after the others, and after each
    draft that was right. ``reads[i]`` says of how many, the last ones, the logits are read: those tokens are chosen
    from, and all of a prompt that is scored.
    """

    sequences: tuple[Sequence, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    samples: tuple[bool, ...]
    drafts: tuple[int, ...]
    reads: tuple[int, ...]
    width: int

    @staticmethod
    def of(spans: Iterable[Span], sequences: tuple[Sequence, ...]) -> Batch:
        """The batch of some spans of a planned run."""
        _, starts, stops, samples, drafts = zip(*spans, strict=True)
        counts = tuple(map(int.__sub__, stops, starts))
        reads = tuple(
            [
                count if sequence.scores is not None else 1 + drafted if samples_now else 0
                for sequence, samples_now, drafted, count in zip(sequences, samples, drafts, counts, strict=True)
            ]
        )
        return Batch(sequences, starts, stops, samples, drafts, reads, max(counts))

    def only(self, index: int) -> Batch:
        """The batch of one of its rows alone."""
        i = slice(index, index + 1)
        width = self.stops[index] - self.starts[index]
        return Batch(
            self.sequences[i], self.starts[i], self.stops[i], self.samples[i], self.drafts[i], self.reads[i], width
        )

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
        """Flattened indices, in [0, b*S), of the new tokens whose logits are read, row by row."""
        if self.width == 1:
            return [i for i, reads in enumerate(self.reads) if reads]
        return [
            i * self.width + column
            for i, (start, stop, reads) in enumerate(zip(self.starts, self.stops, self.reads, strict=True))
            for column in range(stop - start - reads, stop - start)
        ]

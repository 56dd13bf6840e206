"""What a decode loop carries from one run of a sequence to the next: ``carry: {hidden: {initial: ..., next: ...}}``.

``initial`` is a value around the loop, read for the run of a sequence's first tokens; every later run reads what
``next`` was at the end of the run before. It becomes so at ``commit``: a run that fails leaves it as it was. Sequences
keep what they carry themselves; it is not found again by tokens, so such loops share no prefixes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.body_values import BodyValue, RowValue
from genai_pipeline.engine.sequence import Sequence
from genai_pipeline.errors import GraphRunError
from genai_pipeline.graph.plan import StagePlan
from genai_pipeline.metadata.expressions import evaluate
from genai_pipeline.metadata.model import CarrySpec

_NOTHING: dict[str, Any] = {}


class Carry:
    """The carried values of one loop."""

    def __init__(self, stage: StagePlan) -> None:
        assert stage.body is not None
        assert stage.spec.decode is not None
        self._reads = stage.reads
        self._specs: Mapping[str, CarrySpec] = stage.spec.decode.carry
        self._next = {name: stage.body.reads[spec.next.text] for name, spec in self._specs.items()}
        self._id = stage.body.id

    @property
    def names(self) -> frozenset[str]:
        """The x of every ``loop.x`` that is carried."""
        return frozenset(self._specs)

    def values(self, batch: Batch) -> dict[str, BodyValue]:
        """What each row reads in this run, by name."""
        return {
            name: RowValue(
                [
                    self._of(name, sequence, start)
                    for sequence, start in zip(batch.sequences, batch.starts, strict=True)
                ],
                batch.counts,
                f"{self._id}: carry.{name}",
            )
            for name in self._specs
        }

    def after(self, batch: Batch, produced: Mapping[str, BodyValue]) -> list[dict[str, Any]]:
        """What each row carries on after this run, row by row: copies, as the next run writes over the originals."""
        if not self._next:
            return [_NOTHING] * batch.size
        found: list[dict[str, Any]] = [{} for _ in batch.sequences]
        for name, key in self._next.items():
            rows = produced[key].rows
            if len(rows) != batch.size:
                raise GraphRunError(f"'{self._id}' carries '{name}', which has {len(rows)} rows for {batch.size}")
            for carried, row in zip(found, rows, strict=True):
                carried[name] = np.array(row)
        return found

    def _of(self, name: str, sequence: Sequence, start: int) -> Any:
        if start:
            return sequence.carried[name]
        values = sequence.values
        return evaluate(self._specs[name].initial.expr, lambda read: values[self._reads[read]])

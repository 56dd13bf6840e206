"""Where the inputs of a body stage come from: the loop, an earlier stage, or values of the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.loop_values import LoopValues
from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.expressions import Expr, evaluate


@dataclass(frozen=True, slots=True)
class Context:
    """What a body can read during one run."""

    batch: Batch
    loop: LoopValues
    body: Mapping[str, NDArray[Any]]  # value key -> what an earlier stage of this run produced


class Feed(Protocol):
    """Gives one port its buffer for a run."""

    def buffer(self, context: Context) -> Buffer:
        """The value as the port takes it."""


@dataclass(frozen=True, slots=True)
class LoopFeed:
    """A value the loop publishes."""

    name: str
    dtype: np.dtype[Any]
    rank: int | None

    def buffer(self, context: Context) -> Buffer:
        """The loop's own buffer of that value."""
        return context.loop.buffer(self.name, self.dtype, self.rank)


@dataclass(frozen=True, slots=True)
class BodyFeed:
    """An output of an earlier stage of the body."""

    key: str
    dtype: np.dtype[Any]

    def buffer(self, context: Context) -> Buffer:
        """The producer's buffer, cast when the port has another dtype."""
        return Buffer.of(np.ascontiguousarray(context.body[self.key], self.dtype))


@dataclass(frozen=True, slots=True)
class ExpressionFeed:
    """Anything else: evaluated for each row and stacked where the port has a batch axis.

    Rows whose values must be equal for want of a batch axis were grouped by the engine before.
    """

    expr: Expr
    reads: Mapping[str, str]
    dtype: np.dtype[Any]
    rank: int | None
    batched: bool

    def buffer(self, context: Context) -> Buffer:
        """The value of all rows."""
        if not self.batched:
            return Buffer.of(as_port(self.row_value(context, 0), self.dtype, self.rank))
        row_rank = None if self.rank is None else self.rank - 1
        values = [as_port(self.row_value(context, i), self.dtype, row_rank) for i in range(context.batch.size)]
        return Buffer.of(np.stack(values))

    def row_value(self, context: Context, row: int) -> object:
        """The expression with loop values of the run and request values of one row."""
        values = context.batch.sequences[row].values

        def lookup(name: str) -> object:
            key = self.reads[name]
            scope, _, local = key.rpartition("/")
            if local.startswith("loop."):
                return _of_row(context.loop.array(local.removeprefix("loop.")), row)
            return _of_row(context.body[key], row) if scope else values[key]

        return evaluate(self.expr, lookup)


def as_port(value: object, dtype: np.dtype[Any], rank: int | None) -> NDArray[Any]:
    """A value as a C-contiguous array of a port's dtype and rank, with or without the batch axis of its one row.

    Raises RequestError for what is no such number.
    """
    try:
        array = np.asarray(value).astype(dtype, order="C", copy=False)
    except (OverflowError, TypeError, ValueError) as error:
        raise RequestError(f"{value!r} is no {dtype} value: {error}") from error
    if rank is not None and array.ndim == rank + 1 and array.shape[0] == 1:
        array = array[0]  # a value that already has the batch axis of its one row
    return array[None] if rank is not None and array.ndim == rank - 1 else array


def _of_row(array: NDArray[Any], row: int) -> object:
    return array if array.ndim == 0 else array[row]

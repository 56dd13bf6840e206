"""Where the inputs of a body stage come from: the loop, an earlier stage, or values around the loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.body_values import BodyValue
from genai_pipeline.engine.loop_values import LoopValues
from genai_pipeline.errors import GraphRunError, RequestError
from genai_pipeline.graph.plan import key_of
from genai_pipeline.metadata.expressions import Expr, evaluate, names


@dataclass(frozen=True, slots=True)
class Context:
    """What a body can read during one run; ``members`` are the ids of the batch's sequences, row by row."""

    batch: Batch
    loop: LoopValues
    body: Mapping[str, BodyValue]  # value key -> what an earlier stage of this run produced
    members: tuple[int, ...]
    carried: Mapping[str, BodyValue] = field(default_factory=dict)  # what the loop carries, by name

    def of_loop(self, name: str, row: int) -> object:
        """A value of the loop for one row, without the batch axis and without padding."""
        if name in self.carried:
            return _of_row(self.carried[name].array, row)
        own = own_row(self.loop.array(name), self.batch, row, name)
        return _of_row(own, 0)


@dataclass(frozen=True, slots=True)
class BodyReads:
    """What names mean in a body: ``keys`` as the plan has them, ``scope`` the body's, ``carried`` names of its loop."""

    keys: Mapping[str, str]
    scope: str
    carried: frozenset[str] = frozenset()

    def local(self, name: str) -> str | None:
        """The key of a name within the body, ``loop.x`` or a stage's output; None for what is around the loop."""
        return local_key(self.keys[name], self.scope)

    def around(self, expr: Expr) -> bool:
        """Whether an expression reads nothing of the loop and its body: it has one value while a sequence runs."""
        return all(local_key(key_of(self.keys, name), self.scope) is None for name in names(expr))

    def row_lookup(self, context: Context, row: int) -> Callable[[str], object]:
        """Values of one row by name, without the batch axis where the loop or the body has them."""
        values = context.batch.sequences[row].values

        def lookup(name: str) -> object:
            key = self.keys[name]
            local = local_key(key, self.scope)
            if local is None:
                return values[key]
            if local.startswith("loop."):
                return context.of_loop(local.removeprefix("loop."), row)
            return _of_row(np.asarray(context.body[key].rows[row]), 0)

        return lookup


def local_key(key: str, scope: str) -> str | None:
    """A value key without the scope it starts with; None for a value of another scope."""
    owner, _, local = key.rpartition("/")
    return local if owner == scope else None


class Feed(Protocol):
    """Gives one port its buffer for a run."""

    def buffer(self, context: Context) -> Buffer:
        """The value as the port takes it."""

    def forget(self) -> None:
        """Let go of what is kept from run to run."""


@dataclass(frozen=True, slots=True)
class LoopFeed:
    """A value the loop publishes."""

    name: str
    dtype: np.dtype[Any]
    rank: int | None

    def buffer(self, context: Context) -> Buffer:
        """The loop's own buffer of that value."""
        return context.loop.buffer(self.name, self.dtype, self.rank)

    def forget(self) -> None:
        """The loop keeps it."""


@dataclass(frozen=True, slots=True)
class BodyFeed:
    """An output of an earlier stage of the body."""

    key: str
    dtype: np.dtype[Any]
    rank: int | None

    def buffer(self, context: Context) -> Buffer:
        """The producer's buffer, cast when the port has another dtype. Raises GraphRunError for another rank."""
        array = context.body[self.key].array
        if self.rank is not None and array.ndim != self.rank:
            name = self.key.rpartition("/")[2]
            raise GraphRunError(f"'{name}' has the shape {list(array.shape)} where its port takes {self.rank} axes")
        return Buffer.of(np.ascontiguousarray(array, self.dtype))

    def forget(self) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class CarryFeed:
    """A value that the loop carries."""

    name: str
    dtype: np.dtype[Any]
    rank: int | None

    def buffer(self, context: Context) -> Buffer:
        """The rows stacked."""
        row_rank = None if self.rank is None else self.rank - 1
        rows = [as_port(row, self.dtype, row_rank) for row in context.carried[self.name].rows]
        if len({row.shape for row in rows}) > 1:
            raise GraphRunError(f"rows carry '{self.name}' in different shapes: they have to run alone")
        return Buffer.of(np.ascontiguousarray(rows[0][None] if len(rows) == 1 else np.stack(rows)))

    def forget(self) -> None:
        """The sequences keep it."""


@dataclass(frozen=True, slots=True)
class ExpressionFeed:
    """Anything else: evaluated for each row and stacked where the port has a batch axis.

    Rows whose values must be equal for want of a batch axis were grouped by the engine before.
    """

    expr: Expr
    reads: BodyReads
    dtype: np.dtype[Any]
    rank: int | None
    batched: bool

    def buffer(self, context: Context) -> Buffer:
        """The value of all rows."""
        if not self.batched:
            return Buffer.of(as_port(self._row_value(context, 0), self.dtype, self.rank))
        row_rank = None if self.rank is None else self.rank - 1
        values = [as_port(self._row_value(context, i), self.dtype, row_rank) for i in range(context.batch.size)]
        return Buffer.of(values[0][None] if len(values) == 1 else np.stack(values))

    def forget(self) -> None:
        """Nothing is kept."""

    def _row_value(self, context: Context, row: int) -> object:
        return evaluate(self.expr, self.reads.row_lookup(context, row))


@dataclass(slots=True)
class KeptFeed:
    """A feed of values around the loop, e.g. an encoder's states: kept while the rows of the batch stay the same."""

    feed: ExpressionFeed
    _members: tuple[int, ...] = ()
    _kept: list[Buffer] = field(default_factory=list)

    def buffer(self, context: Context) -> Buffer:
        """The buffer of the last run, if that had the same rows."""
        if context.members != self._members:
            self._kept[:] = [self.feed.buffer(context)]
            self._members = context.members
        return self._kept[0]

    def forget(self) -> None:
        """Let go of the rows that ran last."""
        self._members = ()
        self._kept.clear()


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


def own_row(array: NDArray[Any], batch: Batch, row: int, name: str) -> NDArray[Any]:
    """A row of a value that the loop publishes, with the batch axis and without padding."""
    if array.ndim == 0:
        return array
    if name == "attention_mask":
        return np.ones((1, batch.stops[row]), array.dtype)
    own = array[row : row + 1]
    return own[:, : batch.stops[row] - batch.starts[row]] if array.ndim > 1 else own


def _of_row(array: NDArray[Any], row: int) -> object:
    return array if array.ndim == 0 else array[row]

"""One operation of a loop body: it runs row by row on each row's own new tokens, without padding.

What an operation gives back as it came costs nothing: the value stays the batch that it was. What reads only values
around the loop is computed once for each sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from genai_pipeline.engine.body_stage import loop_names
from genai_pipeline.engine.body_values import BodyValue, RowValue
from genai_pipeline.engine.feeds import BodyReads, Context, own_row
from genai_pipeline.graph.plan import StagePlan, key_of
from genai_pipeline.metadata.call_parameters import call_values
from genai_pipeline.metadata.expressions import Name, evaluate, names
from genai_pipeline.metadata.model import Binding
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import Operation
from genai_pipeline.preprocess.tokenizer import Tokenizer

Rows = Sequence[Any]


class BodyOp:
    """Runs an operation for every row of a run.

    ``settled``: it reads nothing that changes while a sequence runs. ``last_reader_of``: the body's values that nobody
    but this stage reads, which the operation may change in place.
    """

    def __init__(
        self,
        stage: StagePlan,
        operation: Operation,
        reads: BodyReads,
        tokenizers: Mapping[str, Tokenizer],
        *,
        settled: bool,
        last_reader_of: frozenset[str],
    ) -> None:
        self.id = stage.id
        self.loop_names = loop_names(reads)
        self._stage = stage
        self._operation = operation
        self._reads = reads
        self._tokenizers = tokenizers
        self._settled = settled
        self._path = f"{reads.scope}/{stage.id}"
        self._inputs = {port: _Input.of(bound, self._reads) for port, bound in stage.spec.inputs.items()}
        used = Counter(name for bound in stage.spec.inputs.values() for name in _names(bound))
        once = {key_of(stage.reads, name) for name, count in used.items() if count == 1}
        self._owned = frozenset(port for port, taken in self._inputs.items() if taken.key in last_reader_of & once)
        self._kept: dict[int, Mapping[str, Any]] = {}  # of a settled stage: what it gave, by sequence
        self._members: tuple[int, ...] = ()
        self._last: dict[str, BodyValue] = {}

    def run(self, context: Context) -> Mapping[str, BodyValue]:
        """The outputs by value key. Raises RequestError, or ExpressionError for parameters of a wrong value."""
        if self._settled and context.members == self._members:
            return self._last
        batch, self._members = context.batch, ()
        given = [self._row(context, row) for row in range(batch.size)]
        values = {key: self._value(port, given, context) for port, key in self._stage.outputs.items()}
        if self._settled:
            self._kept = dict(zip(context.members, given, strict=True))
            self._members, self._last = context.members, values
        return values

    def forget(self) -> None:
        """Let go of what is kept from run to run."""
        self._members, self._last, self._kept = (), {}, {}

    def _row(self, context: Context, row: int) -> Mapping[str, Any]:
        batch = context.batch
        sequence = batch.sequences[row]
        if self._settled and sequence.id in self._kept:
            return self._kept[sequence.id]
        lookup = _row_lookup(self._reads, context, row)
        inputs = {port: taken.value(context, row, lookup) for port, taken in self._inputs.items()}
        params = call_values(self._stage.spec.params, self._operation.spec.parameters, lookup)
        call = OpContext(
            tokenizers=self._tokenizers,
            seed=sequence.seed,
            stage=self._path,
            item=(*sequence.item, sequence.choice),
            start=batch.starts[row],
            stop=batch.stops[row],
            owned=self._owned,
        )
        return self._operation.run(inputs, params, call)

    def _value(self, port: str, given: Iterable[Mapping[str, Any]], context: Context) -> BodyValue:
        """An output of all rows: the batch of an input that came back as it was, or what there is now."""
        rows = [outputs[port] for outputs in given]
        for taken in self._inputs.values():
            source = context.body.get(taken.key or "")
            if source is not None and all(row is own for row, own in zip(rows, source.rows, strict=True)):
                return source
        return RowValue(rows, context.batch.counts, self._path)


@dataclass(frozen=True, slots=True)
class _Input:
    """What a port takes: a value of the body as it is (``key``), one of the loop (``loop``), or expressions."""

    bound: Binding | tuple[Binding, ...]
    key: str | None = None
    loop: str | None = None
    members: tuple[_Input, ...] = ()  # of a list

    @staticmethod
    def of(bound: Binding | tuple[Binding, ...], reads: BodyReads) -> _Input:
        """The input for what is bound to a port."""
        if isinstance(bound, tuple):
            return _Input(bound, members=tuple(_Input.of(binding, reads) for binding in bound))
        if isinstance(bound.expr, Name):
            local = reads.local(bound.expr.text)
            if local is not None and local.startswith("loop."):
                return _Input(bound, loop=local.removeprefix("loop."))
            if local is not None:
                return _Input(bound, key=reads.keys[bound.expr.text])
        return _Input(bound)

    def value(self, context: Context, row: int, lookup: Callable[[str], object]) -> Any:
        """The value of a row."""
        if self.key is not None:
            return context.body[self.key].rows[row]
        if self.loop is not None and self.loop in context.carried:
            return context.carried[self.loop].rows[row]
        if self.loop is not None:
            return own_row(context.loop.array(self.loop), context.batch, row, self.loop)
        if isinstance(self.bound, tuple):
            return [member.value(context, row, lookup) for member in self.members]
        return evaluate(self.bound.expr, lookup)


def _row_lookup(reads: BodyReads, context: Context, row: int) -> Callable[[str], object]:
    """Values of one row by name; those of the body as operations have them, with the batch axis, without padding."""
    plain = reads.row_lookup(context, row)

    def lookup(name: str) -> object:
        local = reads.local(name)
        if local is None or local.startswith("loop."):
            return plain(name)
        return context.body[reads.keys[name]].rows[row]

    return lookup


def _names(bound: Binding | tuple[Binding, ...]) -> Iterator[str]:
    for binding in bound if isinstance(bound, tuple) else (bound,):
        yield from names(binding.expr)

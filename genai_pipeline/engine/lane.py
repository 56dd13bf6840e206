"""A loop body with bindings of its own, so that what one kind of run bound stays bound for the next of its kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Binding, Buffer, LoadedGraph
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.body_op import BodyOp
from genai_pipeline.engine.body_stage import BodyStage
from genai_pipeline.engine.body_values import BodyValue
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.carry import Carry
from genai_pipeline.engine.feeds import BodyReads, Context, local_key
from genai_pipeline.engine.graph_pair import PairBinding
from genai_pipeline.engine.loop_values import Frame, LoopValues
from genai_pipeline.graph.plan import ScopePlan, StagePlan
from genai_pipeline.kv.pool import KvPool
from genai_pipeline.ops.registry import operation
from genai_pipeline.preprocess.tokenizer import Tokenizer


class Lane:
    """Runs the stages of a body in order over one batch and gives the logits that are read."""

    def __init__(
        self,
        body: ScopePlan,
        logits_key: str,
        graphs: Mapping[str, LoadedGraph],
        pool: KvPool,
        tokenizers: Mapping[str, Tokenizer],
        carry: Carry,
    ) -> None:
        self._carry = carry
        self.carried: list[dict[str, Any]] = []  # what the rows of the last run carry on, row by row
        self._stages = _stages(body, graphs, pool, tokenizers, carry.names)
        self._runs = [stage for stage in self._stages if isinstance(stage, BodyStage)]
        self.bindings: tuple[Binding, ...] = tuple([stage.binding for stage in self._runs])
        self._values = LoopValues({read for stage in self._runs for read in stage.loop_reads()})
        self.loop_reads = frozenset(name for stage in self._stages for name in stage.loop_names)
        self._pairs = [stage.binding for stage in self._runs if isinstance(stage.binding, PairBinding)]
        self.tells_first = bool(self._pairs) or "first" in self.loop_reads
        self._logits_key = logits_key
        self._logit_rows = GrowingArray(np.dtype(np.int64))
        self._gathers = any(stage.graph.logit_rows and stage.gives(logits_key) for stage in self._runs)
        self._pool = pool
        self.reads_any_row = self._gathers or any(_gives_rows(stage, logits_key) for stage in self._runs)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [n, vocabulary] of the n tokens of ``batch`` that are read, row by row. Raises GenaiError."""
        rows, counts = batch.rows, batch.counts
        first = batch.starts[0] == 0
        assert not self.tells_first or all((start == 0) == first for start in batch.starts), "first runs run apart"
        for pair in self._pairs:
            pair.choose(first=first)
        past_width = max(batch.starts)
        for stage in self._runs:
            past_width = max(past_width, self._pool.bind(stage.component, stage.binding, rows, batch.starts, counts))
        self._values.update(Frame(batch, self._pool.pad_side, past_width))
        logit_rows = self._fill_logit_rows(batch)
        produced: dict[str, BodyValue] = {}
        members = tuple([sequence.id for sequence in batch.sequences])
        context = Context(batch, self._values, produced, members, self._carry.values(batch))
        for one in self._stages:
            produced.update(one.run(context, logit_rows) if isinstance(one, BodyStage) else one.run(context))
        self.carried = self._carry.after(batch, produced)
        logits: NDArray[Any] = produced[self._logits_key].array
        if not self._gathers:
            logits = _read_rows(logits, batch, self._logit_rows.array)
        owned = logits.flags.writeable and logits.dtype == np.float32  # memory of the backend's own is read-only
        return logits if owned else logits.astype(np.float32)

    def forget(self) -> None:
        """Let go of what is kept from run to run for rows that stay the same."""
        for stage in self._stages:
            stage.forget()

    def _fill_logit_rows(self, batch: Batch) -> Buffer:
        rows = batch.logit_rows()
        self._logit_rows.resize((len(rows),))[...] = rows
        return self._logit_rows.buffer


def _stages(
    body: ScopePlan,
    graphs: Mapping[str, LoadedGraph],
    pool: KvPool,
    tokenizers: Mapping[str, Tokenizer],
    carried: frozenset[str],
) -> list[BodyStage | BodyOp]:
    """The stages of a body in dataflow order."""
    readers = Counter(key for stage in body.stages for key in stage.reads.values())
    readers.update(body.reads.values())
    made: list[BodyStage | BodyOp] = []
    settled: set[str] = set()  # values of the body that stay the same while a sequence runs
    fresh: set[str] = set()  # values in memory that a component writes anew in each run
    for stage in body.stages:
        reads = BodyReads(stage.reads, body.id, carried)
        spec = None if stage.spec.op is None else operation(stage.spec.op).spec
        moves = spec is not None and (spec.reads_range or not spec.deterministic)
        is_settled = _is_settled(stage, body.id, settled) and not moves and not pool.keeps(stage.spec.run or "")
        if is_settled:
            settled.update(stage.outputs.values())
        elif stage.spec.run is not None:
            fresh.update(stage.outputs.values())
        if stage.spec.run is not None:
            made.append(BodyStage(stage, graphs[stage.spec.run], reads, settled=is_settled))
        else:
            assert stage.spec.op is not None, "a body has runs and operations"
            alone = frozenset(key for key in stage.reads.values() if readers[key] == 1 and key in fresh)
            found = operation(stage.spec.op)
            made.append(BodyOp(stage, found, reads, tokenizers, settled=is_settled, last_reader_of=alone))
    return made


def _is_settled(stage: StagePlan, scope: str, settled: set[str]) -> bool:
    """Whether a stage reads only what stays the same while a sequence runs."""
    return all(local_key(key, scope) is None or key in settled for key in stage.reads.values())


def _read_rows(logits: NDArray[np.float32], batch: Batch, logit_rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits that are read, of a graph that gives every position [b, S, V] or only the last [b, V] or [b, 1, V]."""
    flat = logits.reshape(-1, logits.shape[-1])
    if flat.shape[0] == batch.size * batch.width:
        return flat[logit_rows]
    return flat[np.flatnonzero(batch.samples)]


def _gives_rows(stage: BodyStage, key: str) -> bool:
    """Whether an output has the logits of every position, so that any may be read."""
    port = stage.port_of(key)
    shape = None if port is None else port.shape
    return shape is not None and len(shape) == 3 and isinstance(shape[1], str)

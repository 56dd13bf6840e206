"""A loop body with bindings of its own, so that what one kind of run bound stays bound for the next of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer, LoadedGraph
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.body_stage import BodyStage
from genai_pipeline.engine.buffers import GrowingArray
from genai_pipeline.engine.feeds import Context
from genai_pipeline.engine.loop_values import Frame, LoopValues
from genai_pipeline.graph.plan import ScopePlan
from genai_pipeline.kv.pool import KvPool


class Lane:
    """Runs the stages of a body in order over one batch and gives the logits that are read."""

    def __init__(self, body: ScopePlan, logits_key: str, graphs: Mapping[str, LoadedGraph], pool: KvPool) -> None:
        self._stages = [BodyStage(stage, graphs[stage.spec.run or ""]) for stage in body.stages]
        reads = {read for stage in self._stages for read in stage.loop_reads()}
        self._values = LoopValues(reads)
        self.loop_reads = frozenset(name for stage in self._stages for name in stage.loop_names)
        self._logits_key = logits_key
        self._logit_rows = GrowingArray(np.dtype(np.int64))
        self._gathers = any(stage.graph.logit_rows and stage.gives(logits_key) for stage in self._stages)
        self._pool = pool
        self.reads_any_row = self._gathers or any(_gives_rows(stage, logits_key) for stage in self._stages)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [n, vocabulary] of the n tokens of ``batch`` that are read, row by row. Raises GraphRunError."""
        rows, counts = batch.rows, batch.counts
        past_width = max(batch.starts)
        for stage in self._stages:
            past_width = max(past_width, self._pool.bind(stage.component, stage.binding, rows, batch.starts, counts))
        self._values.update(Frame(batch, self._pool.pad_side, past_width))
        logit_rows = self._fill_logit_rows(batch)
        produced: dict[str, NDArray[Any]] = {}
        context = Context(batch, self._values, produced)
        for stage in self._stages:
            produced.update(stage.run(context, logit_rows))
        logits = produced[self._logits_key]
        if not self._gathers:
            logits = _read_rows(logits, batch, self._logit_rows.array)
        owned = logits.flags.writeable and logits.dtype == np.float32  # memory of the backend's own is read-only
        return logits if owned else logits.astype(np.float32)

    def _fill_logit_rows(self, batch: Batch) -> Buffer:
        rows = batch.logit_rows()
        self._logit_rows.resize((len(rows),))[...] = rows
        return self._logit_rows.buffer


def _read_rows(logits: NDArray[np.float32], batch: Batch, logit_rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits that are read, of a graph that gives every position [b, S, V] or only the last [b, V] or [b, 1, V]."""
    flat = logits.reshape(-1, logits.shape[-1])
    if flat.shape[0] == batch.size * batch.width:
        return flat[logit_rows]
    return flat[np.flatnonzero(batch.samples)]


def _gives_rows(stage: BodyStage, key: str) -> bool:
    """Whether an output has the logits of every position, so that any may be read."""
    port = stage.port_of(key)
    shape = None if port is None else stage.graph.signature.outputs[port].shape
    return shape is not None and len(shape) == 3 and isinstance(shape[1], str)

"""A closed-form encoder and decoder: the decoder sums its own cache and the cross cache of the source (``fixed``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from genai_pipeline.testing.builder import Dim, GraphBuilder, Value
from genai_pipeline.testing.graphs.caches import Geometry, arange, join_heads, split_heads
from genai_pipeline.testing.graphs.decoder import token_port
from genai_pipeline.testing.graphs.rules import (
    CELL_MODULUS,
    HIDDEN_MODULUS,
    PARTS,
    Step,
    SumRule,
    cell_weights,
    weighted_cells,
)


@dataclass(frozen=True)
class CrossRule(SumRule):
    """FX-kv with a source: each layer also adds the weighted sums of the cross cache, key once and value twice.

    The encoder writes cells (token + (layer + 3) * position + 3 * part + cell) mod 5 for every source token.
    ``expected`` takes the source as its prompt; decoding starts from ``start``. With ``captured`` the decoder computes
    the cross cache itself from ``source_states`` while its cache input is empty (and wrongly, by one, later on).
    """

    start: tuple[int, ...] = (0,)
    geometry: Geometry = field(default_factory=Geometry)
    captured: bool = False

    def layer(self, b: GraphBuilder, layer: int, hidden: Value, columns: Sequence[Value], step: Step) -> Value:
        """See Rule.layer; declares the layer's cross cache ports."""
        own = super().layer(b, layer, hidden, columns, step)
        for part, factor in zip(PARTS, (1, 2), strict=True):
            cells = join_heads(b, self.geometry, self._cross_block(b, layer, part, step))
            weights = cell_weights(layer, part, self.cells).astype(np.float32).reshape(-1, 1)
            total = b.cast(b.op("ReduceSum", b.op("MatMul", cells, weights), [1], keepdims=0), "int64")  # [b, 1]
            own = b.op("Add", own, b.op("Mul", total, factor))
        return b.op("Mod", own, HIDDEN_MODULUS)

    def encoder(self) -> GraphBuilder:
        """``input_ids`` -> ``cross.{layer}.{part}``, or ``source_states`` [batch, sequence, 1] when captured."""
        b = GraphBuilder("encoder")
        states = b.cast(b.op("Unsqueeze", token_port(b), [-1]), "float32")
        if self.captured:
            b.output("source_states", states, "float32", ["batch", "sequence", 1])
            return b
        for layer in range(self.layers):
            for part in PARTS:
                block = self._project(b, layer, part, states, b.const([0]))
                b.output(f"cross.{layer}.{part}", block, self._dtype(part), self._shape("sequence"))
        return b

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens of the answer to the source ``prompt``."""
        totals = [
            sum(
                factor * weighted_cells(token + (layer + 3) * position + 3 * index, layer, part, self.cells)
                for position, token in enumerate(prompt)
                for index, (part, factor) in enumerate(zip(PARTS, (1, 2), strict=True))
            )
            for layer in range(self.layers)
        ]
        return self.generate(self.start, count, totals)

    def _project(self, b: GraphBuilder, layer: int, part: str, states: Value, shift: Value) -> Value:
        """The cross cache block [b, heads, N, head_dim] of source states [b, N, 1]; ``shift`` is 0 in a right run."""
        position = b.op("Unsqueeze", arange(b, b.size(states, 1)), [1])  # [N, 1]
        content = b.op("Add", b.cast(states, "int64"), b.op("Mul", position, layer + 3))
        content = b.op("Add", content, shift)
        offsets = np.arange(self.cells, dtype=np.int64) + 3 * PARTS.index(part)
        cells = b.cast(b.op("Mod", b.op("Add", content, offsets), CELL_MODULUS), "float32")
        return split_heads(b, self.geometry, cells, self._dtype(part))

    def _cross_block(self, b: GraphBuilder, layer: int, part: str, step: Step) -> Value:
        """The block a run uses: the cache input, or what is computed now while that is empty (captured)."""
        past = b.input(f"cross_key_values.{layer}.{part}", self._dtype(part), self._shape("source"))
        if not self.captured:
            return past
        states = b.port("source_states") or b.input("source_states", "float32", ["batch", "states", 1])
        later = b.cast(b.op("Greater", b.op("Slice", step.position, [0], [1], [1]), 0), "int64")  # [b, 1]
        computed = self._project(b, layer, part, states, b.op("Unsqueeze", later, [-1]))
        both = b.op("Concat", past, computed, axis=2)
        block = b.op("Slice", both, [0], b.size(states, 1), [2])
        b.output(f"cross.{layer}.{part}", block, self._dtype(part), self._shape("states"))
        return block

    def _dtype(self, part: str) -> str:
        """The dtype of one part of the cache."""
        return self.geometry.key_dtype if part == "key" else self.geometry.value_dtype

    def _shape(self, length: str) -> list[Dim]:
        """The shape of a cross cache block."""
        return ["batch", self.geometry.heads, length, self.geometry.head_dim]

"""Closed-form decoders without state: FX-table (next token by last token), FX-pos and FX-flat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.caches import arange
from genai_pipeline.testing.graphs.decoder import logits_port, token_port

NEVER = -1.0e4  # the logit of a token with probability 0; finite in float16


@dataclass(frozen=True)
class TableRule:
    """next token = table[last token]; the graph takes nothing but ``input_ids``."""

    table: tuple[int, ...]
    peak: float = 64.0
    logits: str = "float32"

    def bindings(self) -> Mapping[str, str]:
        """Port -> loop value, besides the tokens."""
        return {}

    def build(self) -> GraphBuilder:
        """``input_ids`` -> ``logits``."""
        b = GraphBuilder("table")
        answer = b.op("Gather", np.array(self.table, np.int64), token_port(b))
        logits_port(b, answer, len(self.table), self.peak, self.logits)
        return b

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``."""
        tokens = [prompt[-1]]
        for _ in range(count):
            tokens.append(self.table[tokens[-1]])
        return tokens[1:]


@dataclass(frozen=True)
class PositionRule:
    """FX-pos: the answer depends on the token, its ``position_ids`` and ``attention_mask``, and on nothing else.

    next = first + (3 * token + 5 * position + 7 * seen + 11 * surplus) mod (vocabulary - first), where seen =
    min(position + 1, ones in the mask) is position + 1, and surplus = max(0, ones - (tokens up to the end of this run))
    is 0, unless the mask is wrong: it misses tokens in use, or counts padding.
    """

    vocabulary: int
    first: int = 0
    peak: float = 64.0
    logits: str = "float32"

    def bindings(self) -> Mapping[str, str]:
        """Port -> loop value, besides the tokens."""
        return {"attention_mask": "loop.attention_mask", "position_ids": "loop.position_ids"}

    def build(self) -> GraphBuilder:
        """``input_ids``, ``attention_mask``, ``position_ids`` -> ``logits``."""
        b = GraphBuilder("positions")
        token = token_port(b)
        mask = b.input("attention_mask", "int64", ["batch", "total"])
        position = b.input("position_ids", "int64", ["batch", "sequence"])
        used = b.op("ReduceSum", mask, [1], keepdims=1)  # [b, 1]
        length = b.size(token, 1)
        left = b.op("Unsqueeze", b.op("Sub", length, arange(b, length)), [0])  # S - s: tokens from here to the end
        surplus = b.op("Max", b.op("Sub", used, b.op("Add", position, left)), 0)
        seen = b.op("Min", b.op("Add", position, 1), used)
        mixed = b.op("Add", b.op("Mul", token, 3), b.op("Mul", position, 5))
        mixed = b.op("Add", b.op("Add", mixed, b.op("Mul", seen, 7)), b.op("Mul", surplus, 11))
        answer = b.op("Mod", mixed, self.vocabulary - self.first)
        logits_port(b, b.op("Add", answer, self.first), self.vocabulary, self.peak, self.logits)
        return b

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``."""
        tokens = list(prompt)
        for _ in range(count):
            position = len(tokens) - 1
            mixed = 3 * tokens[-1] + 5 * position + 7 * (position + 1)
            tokens.append(self.first + mixed % (self.vocabulary - self.first))
        return tokens[len(prompt) :]


@dataclass(frozen=True)
class FlatRule:
    """FX-flat: the same distribution whatever comes in, given as one probability per token."""

    probabilities: tuple[float, ...]
    logits: str = "float32"

    def bindings(self) -> Mapping[str, str]:
        """Port -> loop value, besides the tokens."""
        return {}

    def build(self) -> GraphBuilder:
        """``input_ids`` -> ``logits``, the logarithms of the probabilities."""
        b = GraphBuilder("flat")
        ones = b.op("Unsqueeze", b.cast(b.op("GreaterOrEqual", token_port(b), 0), self.logits), [-1])
        head = [float(np.log(p)) if p > 0 else NEVER for p in self.probabilities]
        logits = b.op("MatMul", ones, b.const([head], self.logits, name="lm_head.weight"))
        b.output("logits", logits, self.logits, ["batch", "sequence", len(head)])
        return b

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The most probable token, ``count`` times (the lowest id among equals)."""
        return [int(np.argmax(self.probabilities))] * count

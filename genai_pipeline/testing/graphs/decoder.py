"""A closed-form decoder: a rule (what is computed) over a cache (how it is kept), as one ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from genai_pipeline.testing.builder import GraphBuilder, Value, digit_head, head_base
from genai_pipeline.testing.graphs.caches import Cache, Geometry
from genai_pipeline.testing.graphs.rules import PARTS, Rule

EMBED_DIGITS = 256  # an embedding row is (id % 256, id // 256, 1, 0): exact in float16
EMBED_SIZE = 4


@dataclass(frozen=True)
class Decoder:
    """A decoder graph to be built: ``takes`` is what its first port holds, ``logits`` its output's dtype."""

    rule: Rule
    cache: Cache
    geometry: Geometry = field(default_factory=Geometry)
    takes: Literal["input_ids", "inputs_embeds"] = "input_ids"
    logits: str = "float32"
    peak: float = 64.0  # the answer's logit; other tokens have 0 or half of it

    def build(self) -> GraphBuilder:
        """The graph: tokens or embeddings, masks and cache in; ``logits`` [batch, sequence, vocabulary], cache out."""
        b = GraphBuilder("decoder", self.cache.opset)
        self.write(b)
        return b

    def write(self, b: GraphBuilder) -> None:
        """Declare the ports and nodes in a builder."""
        token = token_port(b) if self.takes == "input_ids" else embeds_port(b)
        step = self.cache.step(b, token)
        hidden, g = token, self.geometry
        for layer in range(self.rule.layers):
            written = [self.rule.write(b, layer, part, hidden, step, g.cells) for part in PARTS]
            cells = (b.cast(written[0], "float32"), b.cast(written[1], "float32"))
            hidden = self.rule.layer(b, layer, hidden, self.cache.store(b, g, layer, cells, step), step)
        logits_port(b, self.rule.answer(b, hidden, step), self.rule.vocabulary, self.peak, self.logits)


def token_port(b: GraphBuilder) -> Value:
    """The ``input_ids`` input, int64 [batch, sequence]."""
    return b.input("input_ids", "int64", ["batch", "sequence"])


def embeds_port(b: GraphBuilder) -> Value:
    """The ``inputs_embeds`` input, float32 [batch, sequence, 4], read back as int64 token ids."""
    embeds = b.input("inputs_embeds", "float32", ["batch", "sequence", EMBED_SIZE])
    ids = b.op("MatMul", embeds, np.array([[1], [EMBED_DIGITS], [0], [0]], np.float32))
    return b.cast(b.op("Round", b.op("Squeeze", ids, [-1])), "int64")


def embedding_graph(vocabulary: int) -> GraphBuilder:
    """``input_ids`` -> ``inputs_embeds`` [batch, sequence, 4], which ``Decoder(takes="inputs_embeds")`` reads."""
    b = GraphBuilder("embedding")
    ids = np.arange(vocabulary)
    rows = np.stack([ids % EMBED_DIGITS, ids // EMBED_DIGITS, np.ones_like(ids), np.zeros_like(ids)], axis=1)
    embeds = b.op("Gather", rows.astype(np.float32), token_port(b))
    b.output("inputs_embeds", embeds, "float32", ["batch", "sequence", EMBED_SIZE])
    return b


def logits_port(b: GraphBuilder, answer: Value, vocabulary: int, peak: float, dtype: str) -> None:
    """The ``logits`` output: answers [b, S] as two one-hot digits through a head MatMul, as models end."""
    base = head_base(vocabulary)
    levels = np.array([0, peak / 2], np.float32)
    digits = [b.op("OneHot", b.op(kind, answer, base), base, levels) for kind in ("Div", "Mod")]
    hidden = b.cast(b.op("Concat", *digits, axis=-1), dtype)
    logits = b.op("MatMul", hidden, b.const(digit_head(vocabulary), dtype, name="lm_head.weight"))
    b.output("logits", logits, dtype, ["batch", "sequence", vocabulary])

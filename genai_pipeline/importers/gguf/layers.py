"""The blocks of a decoder as nodes: norms on a residual stream, attention, gated feed-forward.

Hidden states are ``[tokens, width]`` over all sequences of a run, so that a product and what is added to it can be
one ``Gemm``; only attention sees ``[batch, tokens, width]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from genai_pipeline.importers.gguf.architecture import DecoderConfig, LayerAttention, Rope
from genai_pipeline.importers.gguf.linear import Precision, add_linear
from genai_pipeline.importers.gguf.reader import GgufFile, GgufTensor
from genai_pipeline.importers.graphs.tape import MICROSOFT, GraphTape, Value


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream: its value so far and what the last block adds to it (None before the first)."""

    residual: Value
    delta: Value | None = None


@dataclass(frozen=True, slots=True)
class RunShape:
    """What attention needs to know about a run: its sequences and how long each is."""

    last_index: Value  # int32 [b]: index of each sequence's last token
    total: Value  # int32 scalar: length of the mask
    by_sequence: Value  # int64 [3]: b, S, -1, to take hidden states apart


class LayerBuilder:
    """Writes the layers of one decoder onto a tape."""

    def __init__(self, tape: GraphTape, file: GgufFile, config: DecoderConfig, precision: Precision) -> None:
        self._tape, self._file, self._config, self._precision = tape, file, config, precision
        self._ropes: dict[Rope, tuple[Value, Value]] = {}

    def layer(self, index: int, stream: Stream, run: RunShape) -> Stream:
        """One decoder layer: attention and feed-forward, each on a normed copy of the stream."""
        block = f"blk.{index}"
        normed, residual = self.norm(stream, f"{block}.attn_norm")
        attended = self._post_norm(self._attention(index, normed, run), f"{block}.post_attention_norm")
        normed, residual = self.norm(Stream(residual, attended), f"{block}.ffn_norm")
        return Stream(residual, self._post_norm(self._feed_forward(block, normed), f"{block}.post_ffw_norm"))

    def norm(self, stream: Stream, name: str) -> tuple[Value, Value]:
        """Root-mean-square norm of the stream, and the stream with its delta added."""
        if stream.delta is None:
            return self._rms_norm(stream.residual, name), stream.residual
        normed, _, _, residual = self._tape.ops(
            "SkipSimplifiedLayerNormalization",
            stream.residual,
            stream.delta,
            self._vector(f"{name}.weight"),
            name=name,
            outputs=4,
            domain=MICROSOFT,
            epsilon=self._config.epsilon,
        )
        return normed, residual

    def _rms_norm(self, value: Value, name: str) -> Value:
        weight = self._vector(f"{name}.weight")
        return self._tape.op(
            "SimplifiedLayerNormalization",
            value,
            weight,
            name=name,
            axis=-1,
            epsilon=self._config.epsilon,
            stash_type=1,
        )

    def _post_norm(self, value: Value, name: str) -> Value:
        return self._rms_norm(value, name) if self._config.post_norms else value

    def _vector(self, name: str) -> Value:
        return self._tape.weight(name, self._file.tensor(name).dequantized())

    def _linear(self, name: str, hidden: Value, tensors: Sequence[GgufTensor], biases: Sequence[GgufTensor]) -> Value:
        product = add_linear(self._tape, self._precision, name, hidden, tensors)
        if not biases:
            return product
        bias = np.concatenate([tensor.dequantized() for tensor in biases])
        return self._tape.op("Add", product, self._tape.weight(f"{name}.bias", bias), name=f"{name}.biased")

    def _stored(self, *names: str) -> list[GgufTensor]:
        """The tensors of these names that the file has."""
        return [self._file.tensors[name] for name in names if name in self._file.tensors]

    def _attention(self, index: int, hidden: Value, run: RunShape) -> Value:
        block, config = f"blk.{index}", self._config
        kinds = (("attn_q", config.heads), ("attn_k", config.kv_heads), ("attn_v", None))
        weights = [tensor for kind, heads in kinds for tensor in self._halves(f"{block}.{kind}.weight", heads)]
        biases = [tensor for kind, heads in kinds for tensor in self._halves(f"{block}.{kind}.bias", heads)]
        packed = self._linear(f"{block}.attn_qkv", hidden, weights, biases)
        attended = self._group_query(index, packed, run, config.attention[index])
        output = f"{block}.attn_output"
        return self._linear(output, attended, self._stored(f"{output}.weight"), self._stored(f"{output}.bias"))

    def _halves(self, name: str, heads: int | None) -> list[GgufTensor]:
        """The tensor with each head's rows as two halves to rotate against each other.

        Families that rotate neighbours store rows 0, h, 1, h+1, ...; taking the even rows first brings them back, so
        that one rotary kernel serves all. ``heads`` None: not rotated.
        """
        tensors = self._stored(name)
        if heads is None or not self._config.interleaved_rope:
            return tensors
        rows = np.arange(heads * self._config.head_dim).reshape(heads, -1, 2).swapaxes(1, 2).ravel()
        return [tensor.take_rows(rows) for tensor in tensors]

    def _group_query(self, index: int, packed: Value, run: RunShape, attention: LayerAttention) -> Value:
        config, tape = self._config, self._tape
        past = [
            tape.input(f"past_key_values.{index}.{part}", "float32", self._cache_shape("past_length"))
            for part in ("key", "value")
        ]
        cosines, sines = self._rope_tables(attention.rope)
        projected = self._projected(f"blk.{index}", packed, run)
        inputs = [*projected, *past, run.last_index, run.total, cosines, sines]
        attributes = {
            "num_heads": config.heads,
            "kv_num_heads": config.kv_heads,
            "scale": config.attention_scale,
            "do_rotary": 1,
            "rotary_interleaved": 0,
            **({"local_window_size": attention.window} if attention.window is not None else {}),
        }
        name = f"blk.{index}.attention"
        attended, *present = tape.ops(
            "GroupQueryAttention", *inputs, name=name, outputs=3, domain=MICROSOFT, **attributes
        )
        for part, value in zip(("key", "value"), present, strict=True):
            tape.output(value, f"present.{index}.{part}", "float32", self._cache_shape("total_length"))
        joined = tape.constant("joined", np.array([-1, config.heads * config.head_dim], dtype=np.int64))
        return tape.op("Reshape", attended, joined, name=f"{name}.joined")

    def _projected(self, block: str, packed: Value, run: RunShape) -> tuple[Value, Value | None, Value | None]:
        """Queries, keys and values for attention: packed, or apart when each head of the first two is normed."""
        config, tape = self._config, self._tape
        if not config.qk_norm:
            return self._by_sequence(f"{block}.attn_packed", packed, run), None, None
        widths = np.array([config.heads, config.kv_heads, config.kv_heads], dtype=np.int64) * config.head_dim
        sizes = tape.constant("qkv_widths", widths)
        query, key, value = tape.ops("Split", packed, sizes, name=f"{block}.attn_split", outputs=3, axis=-1)
        return (
            self._by_sequence(f"{block}.attn_query", self._norm_heads(f"{block}.attn_q_norm", query), run),
            self._by_sequence(f"{block}.attn_key", self._norm_heads(f"{block}.attn_k_norm", key), run),
            self._by_sequence(f"{block}.attn_value", value, run),
        )

    def _by_sequence(self, name: str, value: Value, run: RunShape) -> Value:
        return self._tape.op("Reshape", value, run.by_sequence, name=name)

    def _norm_heads(self, name: str, value: Value) -> Value:
        heads = self._tape.constant("heads_apart", np.array([0, -1, self._config.head_dim], dtype=np.int64))
        return self._rms_norm(self._tape.op("Reshape", value, heads, name=f"{name}.heads"), name)

    def _cache_shape(self, length: str) -> tuple[int | str, ...]:
        return ("batch", self._config.kv_heads, length, self._config.head_dim)

    def _rope_tables(self, rope: Rope) -> tuple[Value, Value]:
        if rope not in self._ropes:
            cosines, sines = rope.tables(self._config.context_length, self._config.head_dim)
            prefix = f"rope.{len(self._ropes)}"
            self._ropes[rope] = self._tape.weight(f"{prefix}.cos", cosines), self._tape.weight(f"{prefix}.sin", sines)
        return self._ropes[rope]

    def _feed_forward(self, block: str, hidden: Value) -> Value:
        tape = self._tape
        gate_up = (f"{block}.ffn_gate", f"{block}.ffn_up")
        weights = self._stored(*(f"{name}.weight" for name in gate_up))
        biases = self._stored(*(f"{name}.bias" for name in gate_up))
        packed = self._linear(f"{block}.ffn_gate_up", hidden, weights, biases)
        gate, up = tape.ops("Split", packed, name=f"{block}.ffn_split", outputs=2, axis=-1, num_outputs=2)
        active = self._activate(gate, f"{block}.ffn_active")
        product = tape.op("Mul", active, up, name=f"{block}.ffn_product")
        down = f"{block}.ffn_down"
        return self._linear(down, product, self._stored(f"{down}.weight"), self._stored(f"{down}.bias"))

    def _activate(self, value: Value, name: str) -> Value:
        if self._config.activation == "gelu_tanh":
            return self._tape.op("Gelu", value, name=name, approximate="tanh")
        return self._tape.op("QuickGelu", value, name=name, domain=MICROSOFT, alpha=1.0)  # x * sigmoid(x)

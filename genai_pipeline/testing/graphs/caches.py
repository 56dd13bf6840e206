"""How a closed-form decoder keeps its cache: one class per ``update`` kind, all behind the same protocol.

Ports follow the common exports: ``past_key_values.{layer}.{part}`` in, ``present.{layer}.{part}`` out, shapes
[batch, heads, length, head_dim].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from genai_pipeline.testing.builder import MICROSOFT, Dim, GraphBuilder, Value
from genai_pipeline.testing.graphs.rules import Step

Positions = Literal["input", "mask"]
Pair = tuple[Value, Value]  # of key and value


@dataclass(frozen=True)
class Geometry:
    """Heads, head size and dtypes of the cache; the number of layers is the rule's."""

    heads: int = 2
    head_dim: int = 8
    key_dtype: str = "float32"
    value_dtype: str = "float32"

    @property
    def cells(self) -> int:
        """Numbers a token writes per layer and part."""
        return self.heads * self.head_dim


class Cache(Protocol):
    """One way to keep keys and values; ``bindings`` are the loop values its extra ports take."""

    @property
    def update(self) -> str:
        """The ``update`` kind to declare."""

    @property
    def opset(self) -> int:
        """The ONNX opset it needs."""

    def bindings(self) -> Mapping[str, str]:
        """Port -> loop value, besides the tokens."""

    def step(self, b: GraphBuilder, token: Value) -> Step:
        """Declare the ports for positions and masks and derive what each token sees; ``token`` is int64 [b, S]."""

    def store(self, b: GraphBuilder, g: Geometry, layer: int, cells: Pair, step: Step) -> Pair:
        """Declare one layer's cache ports and write cells [b, S, heads * head_dim], float32; all columns come back."""


def past_ports(b: GraphBuilder, g: Geometry, layer: int, length: str) -> Pair:
    """The key and value cache inputs of a layer."""
    shape: list[Dim] = ["batch", g.heads, length, g.head_dim]
    key = b.input(f"past_key_values.{layer}.key", g.key_dtype, shape)
    return key, b.input(f"past_key_values.{layer}.value", g.value_dtype, shape)


def present_ports(b: GraphBuilder, g: Geometry, layer: int, presents: Pair, length: str) -> None:
    """Name the key and value cache outputs of a layer."""
    shape: list[Dim] = ["batch", g.heads, length, g.head_dim]
    b.output(f"present.{layer}.key", presents[0], g.key_dtype, shape)
    b.output(f"present.{layer}.value", presents[1], g.value_dtype, shape)


def split_heads(b: GraphBuilder, g: Geometry, cells: Value, dtype: str) -> Value:
    """[b, S, heads * head_dim] as a cache block [b, heads, S, head_dim] of ``dtype``."""
    heads = b.op("Reshape", cells, [0, 0, g.heads, g.head_dim])
    return b.cast(b.op("Transpose", heads, perm=[0, 2, 1, 3]), dtype)


def join_heads(b: GraphBuilder, g: Geometry, block: Value) -> Value:
    """A cache block [b, heads, T, head_dim] as float32 [b, T, heads * head_dim]."""
    wide = b.cast(b.op("Transpose", block, perm=[0, 2, 1, 3]), "float32")
    return b.op("Reshape", wide, [0, 0, g.cells])


def arange(b: GraphBuilder, size: Value) -> Value:
    """0 ... size - 1 for a size of shape [1]."""
    return b.op("Range", 0, b.op("Squeeze", size, [0]), 1)


def buffer_columns(b: GraphBuilder, token: Value, width: Value) -> Value:
    """int64 [b, T]: 0 ... T - 1 for every row, T given as a value of shape [1]."""
    shape = b.op("Concat", b.size(token, 0), width, axis=0)
    return b.op("Expand", b.op("Unsqueeze", arange(b, width), [0]), shape)


def columns_up_to(b: GraphBuilder, position: Value, columns: Value) -> Value:
    """bool [b, S, T]: the columns whose position is at most the token's own; ``columns`` broadcasts to [b, T]."""
    return b.op("LessOrEqual", b.op("Unsqueeze", columns, [1]), b.op("Unsqueeze", position, [-1]))


@dataclass(frozen=True)
class AppendCache:
    """present = past + new. Columns are masked, so ragged rows may be padded on either side.

    ``positions="input"`` takes ``position_ids``; ``"mask"`` counts them from the mask, as many exports do inside.
    """

    positions: Positions = "input"
    update: str = "append"
    opset: int = 21

    def bindings(self) -> Mapping[str, str]:
        """See Cache.bindings."""
        ports = {"attention_mask": "loop.attention_mask"}
        return {**ports, "position_ids": "loop.position_ids"} if self.positions == "input" else ports

    def step(self, b: GraphBuilder, token: Value) -> Step:
        """The mask covers past and new columns; a token sees the masked-in columns up to its own."""
        mask = b.input("attention_mask", "int64", ["batch", "total"])
        length, width = b.size(token, 1), b.size(mask, 1)
        past = b.op("Sub", width, length)
        ranks = b.op("Sub", b.op("CumSum", mask, 1), 1)  # [b, T]: the position of each masked-in column
        if self.positions == "input":
            position = b.input("position_ids", "int64", ["batch", "sequence"])
        else:
            position = b.op("Slice", ranks, past, width, [1])
        own = b.op("Add", arange(b, length), past)  # the column each new token is written to
        causal = b.op("LessOrEqual", b.op("Unsqueeze", arange(b, width), [0]), b.op("Unsqueeze", own, [1]))
        in_use = b.op("Unsqueeze", b.cast(mask, "bool"), [1])
        return Step(token, position, b.op("And", in_use, b.op("Unsqueeze", causal, [0])), ranks)

    def store(self, b: GraphBuilder, g: Geometry, layer: int, cells: Pair, step: Step) -> Pair:
        """See Cache.store."""
        past = past_ports(b, g, layer, "past")
        new = (split_heads(b, g, cells[0], g.key_dtype), split_heads(b, g, cells[1], g.value_dtype))
        present = (b.op("Concat", past[0], new[0], axis=2), b.op("Concat", past[1], new[1], axis=2))
        present_ports(b, g, layer, present, "total")
        return join_heads(b, g, present[0]), join_heads(b, g, present[1])


@dataclass(frozen=True)
class InPlaceCache:
    """GroupQueryAttention writes the new tokens into the buffer that is both past and present.

    ``positions="mask"`` derives everything from the mask, as exported models do; ``"input"`` takes the lengths through
    ports: ``seqlens_k`` (one per row) and ``total_sequence_length`` (a scalar). The kernel limits batches to one new
    token per row, or first prefills padded on the right, or one row.
    """

    positions: Positions = "mask"
    update: str = "in_place"
    opset: int = 21

    def bindings(self) -> Mapping[str, str]:
        """See Cache.bindings."""
        if self.positions == "mask":
            return {"attention_mask": "loop.attention_mask"}
        return {"seqlens_k": "loop.last_index", "total_sequence_length": "loop.max_length"}

    def step(self, b: GraphBuilder, token: Value) -> Step:
        """Buffer columns are positions; the past of a row is its length less the new tokens, or 0 in a first run."""
        last, total = self._lengths(b)
        length, width = b.size(token, 1), b.op("Reshape", b.cast(total, "int64"), [1])
        past = b.op("Sub", b.op("Add", b.cast(last, "int64"), 1), length)  # [b]
        past = b.op("Where", b.op("Equal", length, width), 0, past)
        position = b.op("Add", b.op("Unsqueeze", past, [1]), b.op("Unsqueeze", arange(b, length), [0]))
        columns = buffer_columns(b, token, width)
        return Step(token, position, columns_up_to(b, position, columns), columns, (last, total))

    def store(self, b: GraphBuilder, g: Geometry, layer: int, cells: Pair, step: Step) -> Pair:
        """See Cache.store; the cells come back from the buffer, cut to the length in use."""
        if g.key_dtype != g.value_dtype:
            raise ValueError("GroupQueryAttention (update in_place) has one dtype for keys and values")
        past = past_ports(b, g, layer, "capacity")
        key, value = b.cast(cells[0], g.key_dtype), b.cast(cells[1], g.value_dtype)
        _, *present = b.ops(
            "GroupQueryAttention", key, key, value, *past, *step.kernel,
            domain=MICROSOFT, count=3, num_heads=g.heads, kv_num_heads=g.heads,
        )  # fmt: skip
        size = b.op("Reshape", b.cast(step.kernel[1], "int64"), [1])
        used = [join_heads(b, g, b.op("Slice", block, [0], size, [2])) for block in present]
        present_ports(b, g, layer, (present[0], present[1]), "capacity")
        return used[0], used[1]

    def _lengths(self, b: GraphBuilder) -> Pair:
        """Index of each row's last token, int32 [b], and the longest row's length, int32 scalar."""
        if self.positions == "input":
            return b.input("seqlens_k", "int32", ["batch"]), b.input("total_sequence_length", "int32", [])
        mask = b.input("attention_mask", "int64", ["batch", "total"])
        last = b.op("Sub", b.op("ReduceSum", mask, [1], keepdims=0), 1)
        return b.cast(last, "int32"), b.cast(b.op("Squeeze", b.size(mask, 1), [0]), "int32")


@dataclass(frozen=True)
class ScatterCache:
    """TensorScatter writes the new tokens into a fixed buffer at ``write_indices``; ``nonpad_kv_seqlen`` tokens count.

    Every row has its own past and may take several tokens: rows are never padded but by the buffer's own end.
    """

    update: str = "scatter"
    opset: int = 24

    def bindings(self) -> Mapping[str, str]:
        """See Cache.bindings."""
        return {"write_indices": "loop.write_indices", "nonpad_kv_seqlen": "loop.total_length"}

    def step(self, b: GraphBuilder, token: Value) -> Step:
        """Buffer columns are positions, and the write index is the past."""
        start = b.input("write_indices", "int64", ["batch"])
        total = b.input("nonpad_kv_seqlen", "int64", ["batch"])
        length = b.size(token, 1)
        position = b.op("Add", b.op("Unsqueeze", start, [1]), b.op("Unsqueeze", arange(b, length), [0]))
        width = b.op("ReduceMax", total, [0], keepdims=1)
        columns = buffer_columns(b, token, width)
        in_use = b.op("Unsqueeze", b.op("Less", columns, b.op("Unsqueeze", total, [1])), [1])
        visible = b.op("And", columns_up_to(b, position, columns), in_use)
        return Step(token, position, visible, columns, (start, width))

    def store(self, b: GraphBuilder, g: Geometry, layer: int, cells: Pair, step: Step) -> Pair:
        """See Cache.store; the cells come back from the buffer, cut to the length in use."""
        start, width = step.kernel
        past = past_ports(b, g, layer, "capacity")
        new = (split_heads(b, g, cells[0], g.key_dtype), split_heads(b, g, cells[1], g.value_dtype))
        present = [b.op("TensorScatter", buffer, block, start, axis=2) for buffer, block in zip(past, new, strict=True)]
        used = [join_heads(b, g, b.op("Slice", block, [0], width, [2])) for block in present]
        present_ports(b, g, layer, (present[0], present[1]), "capacity")
        return used[0], used[1]

"""How a GGUF tensor becomes a matrix of the graph, by precision: dequantised, its own codes, or rounded to codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from genai_pipeline.importers.gguf.reader import GgufTensor, block_geometry, stack_rows
from genai_pipeline.importers.graphs.matrices import (
    BlockMatrix,
    CodeArray,
    DenseMatrix,
    FloatArray,
    Matrix,
    round_to_8_bits,
)

Encoder = Callable[[Sequence[GgufTensor]], Matrix]
Splitter = Callable[[GgufTensor], BlockMatrix]


def encode_dense(tensors: Sequence[GgufTensor]) -> Matrix:
    """Float32 values of the tensors, stacked by rows."""
    return DenseMatrix(np.concatenate([tensor.dequantized() for tensor in tensors]))


def encode_exact(tensors: Sequence[GgufTensor]) -> Matrix:
    """The stored codes of 4-bit types, else float32 values.

    8-bit codes would be as exact, but without rounded inputs their product unpacks the whole matrix at every step.
    """
    return _stored_codes(tensors, _4_BIT) or encode_dense(tensors)


def encode_fast(tensors: Sequence[GgufTensor]) -> Matrix:
    """The stored codes of 4-bit types and Q8_0, else the values rounded to 8-bit codes."""
    stored = _stored_codes(tensors, _4_BIT | _8_BIT)
    return stored or round_to_8_bits(np.concatenate([tensor.dequantized() for tensor in tensors]))


def _stored_codes(tensors: Sequence[GgufTensor], splitters: Mapping[str, Splitter]) -> BlockMatrix | None:
    """The tensors' own codes, when all are of one type that a splitter reads."""
    kinds = {tensor.ggml_type for tensor in tensors}
    splitter = splitters.get(tensors[0].ggml_type) if len(kinds) == 1 else None
    return splitter(stack_rows(tensors)) if splitter else None


def _blocks(tensor: GgufTensor) -> CodeArray:
    """The stored bytes, ``[outputs, blocks, bytes per block]``."""
    _, size = block_geometry(tensor.ggml_type)
    return np.ascontiguousarray(tensor.data).reshape(tensor.shape[0], -1, size)


def _half(data: CodeArray) -> FloatArray:
    """Two bytes on the last axis as one float16, in float32."""
    return np.ascontiguousarray(data).view("<f2")[..., 0].astype(np.float32)


def _nibbles(data: CodeArray) -> CodeArray:
    """16 bytes a block as 32 codes: the low halves are the first 16, the high halves the last."""
    low, high = data & np.uint8(0x0F), data >> np.uint8(4)
    return np.concatenate([low, high], axis=-1).reshape(data.shape[0], -1)


def _split_q4_0(tensor: GgufTensor) -> BlockMatrix:
    blocks = _blocks(tensor)
    return BlockMatrix(4, _nibbles(blocks[..., 2:]), _half(blocks[..., :2]))


def _split_q4_1(tensor: GgufTensor) -> BlockMatrix:
    blocks = _blocks(tensor)
    scales, minima = _half(blocks[..., :2]), _half(blocks[..., 2:4])
    # d * q + m = d * (q - 8) + (m + 8 d)
    return BlockMatrix(4, _nibbles(blocks[..., 4:]), scales, minima + 8 * scales)


def _split_q8_0(tensor: GgufTensor) -> BlockMatrix:
    blocks = _blocks(tensor)
    codes = (blocks[..., 2:] ^ np.uint8(0x80)).reshape(tensor.shape[0], -1)  # two's complement -> offset by 128
    return BlockMatrix(8, codes, _half(blocks[..., :2]))


_4_BIT: dict[str, Splitter] = {"Q4_0": _split_q4_0, "Q4_1": _split_q4_1}
_8_BIT: dict[str, Splitter] = {"Q8_0": _split_q8_0}

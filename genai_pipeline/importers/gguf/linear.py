"""Linear maps, the embedding and the head in each precision: which nodes and weights a matrix becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from genai_pipeline.importers.gguf.matrices import (
    BLOCK,
    BlockMatrix,
    DenseMatrix,
    Encoder,
    Matrix,
    encode_dense,
    encode_exact,
    encode_fast,
)
from genai_pipeline.importers.gguf.reader import GgufTensor
from genai_pipeline.importers.gguf.tape import MICROSOFT, GraphTape, Value


@dataclass(frozen=True, slots=True)
class Precision:
    """How matrices are stored (``encode``) and with which accuracy ``MatMulNBits`` may round its input.

    Level 0 computes in float32; level 4 rounds the input to 8 bits per block and multiplies integers.
    """

    name: str
    encode: Encoder
    accuracy_level: int


PRECISIONS = {
    precision.name: precision
    for precision in (
        Precision("float32", encode_dense, 0),
        Precision("exact", encode_exact, 0),
        Precision("fast", encode_fast, 4),
    )
}


@dataclass(frozen=True, slots=True)
class Rows:
    """A written matrix kept row by row, which a look-up and the head can share."""

    weights: Value
    scales: Value | None  # None: dense
    bits: int
    shape: tuple[int, int]  # outputs, inputs


def add_linear(tape: GraphTape, precision: Precision, name: str, hidden: Value, tensors: Sequence[GgufTensor]) -> Value:
    """``hidden[tokens, inputs]`` times the stacked rows of ``tensors``: ``[tokens, outputs]``."""
    matrix = precision.encode(tensors)
    if isinstance(matrix, DenseMatrix):
        return tape.op("MatMul", hidden, tape.weight(f"{name}.weight", matrix.values.T), name=name)
    inputs = tensors[0].shape[1]
    return _add_block_linear(tape, precision, name, hidden, matrix, inputs)


def _add_block_linear(
    tape: GraphTape, precision: Precision, name: str, hidden: Value, matrix: BlockMatrix, inputs: int
) -> Value:
    codes = tape.weight(f"{name}.codes", matrix.packed())
    scales = tape.weight(f"{name}.scales", matrix.scales)
    shape = (matrix.codes.shape[0], inputs)
    product = _multiply_codes(tape, precision, name, hidden, Rows(codes, scales, matrix.bits, shape))
    if matrix.offsets is None:
        return product
    # What the offsets add to output n is the sum over blocks of (sum of the block's inputs) * offset[n, block].
    split = tape.constant("block_shape", np.array([0, -1, BLOCK], dtype=np.int64))
    last = tape.constant("last_axis", np.array([-1], dtype=np.int64))
    blocks = tape.op("Reshape", hidden, split, name=f"{name}.blocks")
    sums = tape.op("ReduceSum", blocks, last, name=f"{name}.sums", keepdims=0)
    offsets = tape.weight(f"{name}.offsets", matrix.offsets.T)
    return tape.op("Gemm", sums, offsets, product, name=f"{name}.corrected")


def _multiply_codes(tape: GraphTape, precision: Precision, name: str, hidden: Value, rows: Rows) -> Value:
    outputs, inputs = rows.shape
    return tape.op(
        "MatMulNBits",
        hidden,
        rows.weights,
        rows.scales,
        name=name,
        domain=MICROSOFT,
        N=outputs,
        K=inputs,
        bits=rows.bits,
        block_size=BLOCK,
        accuracy_level=precision.accuracy_level,
    )


def add_rows(tape: GraphTape, precision: Precision, name: str, tensor: GgufTensor) -> Rows:
    """Writes the embedding table in a form whose rows can be looked up."""
    matrix = _lookup_form(precision.encode([tensor]), tensor)
    shape = (tensor.shape[0], tensor.shape[1])
    if isinstance(matrix, DenseMatrix):
        return Rows(tape.weight(f"{name}.weight", matrix.values), None, 32, shape)
    codes = tape.weight(f"{name}.codes", matrix.packed().reshape(shape[0], -1))
    return Rows(codes, tape.weight(f"{name}.scales", matrix.scales), matrix.bits, shape)


def _lookup_form(matrix: Matrix, tensor: GgufTensor) -> Matrix:
    """Blocks with offsets, or padded ones, have no look-up operator: such a table is kept as float32 values."""
    if isinstance(matrix, BlockMatrix) and (matrix.offsets is not None or matrix.codes.shape != tensor.shape):
        return encode_dense([tensor])
    return matrix


def add_lookup(tape: GraphTape, name: str, rows: Rows, tokens: Value) -> Value:
    """Rows of the table for ``tokens[n]``: ``[n, inputs]`` in float32."""
    if rows.scales is None:
        return tape.op("Gather", rows.weights, tokens, name=name)
    return tape.op(
        "GatherBlockQuantized",
        rows.weights,
        tokens,
        rows.scales,
        name=name,
        domain=MICROSOFT,
        bits=rows.bits,
        block_size=BLOCK,
        gather_axis=0,
        quantize_axis=1,
    )


def add_tied_head(tape: GraphTape, precision: Precision, name: str, hidden: Value, rows: Rows) -> Value:
    """Logits from the embedding's own rows; the file holds them once."""
    if rows.scales is None:
        return tape.op("FusedMatMul", hidden, rows.weights, name=name, domain=MICROSOFT, transB=1)
    outputs, inputs = rows.shape
    packed_shape = (outputs, -(-inputs // BLOCK), BLOCK * rows.bits // 8)
    codes = tape.alias(f"{name}.codes", rows.weights, packed_shape)
    return _multiply_codes(tape, precision, name, hidden, Rows(codes, rows.scales, rows.bits, rows.shape))

"""Linear maps, look-ups and heads as nodes, from a matrix in either form.

``accuracy_level`` says how ``MatMulNBits`` may round the input of a block matrix: 0 computes in float32, 4 rounds to
8 bits per block and multiplies integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genai_pipeline.importers.graphs.matrices import BLOCK, BlockMatrix, DenseMatrix, FloatArray, Matrix
from genai_pipeline.importers.graphs.tape import MICROSOFT, GraphTape, Value


@dataclass(frozen=True, slots=True)
class Rows:
    """A written matrix kept row by row, which a look-up and the head can share."""

    weights: Value
    scales: Value | None  # None: dense
    bits: int
    shape: tuple[int, int]  # outputs, inputs


def add_product(
    tape: GraphTape, name: str, hidden: Value, matrix: Matrix, inputs: int, *, accuracy_level: int
) -> Value:
    """``hidden[..., inputs]`` times the rows of ``matrix``: ``[..., outputs]``.

    A matrix with offsets takes ``hidden[tokens, inputs]`` only.
    """
    if isinstance(matrix, DenseMatrix):
        return tape.op("MatMul", hidden, tape.weight(f"{name}.weight", matrix.values.T), name=name)
    rows = Rows(
        tape.weight(f"{name}.codes", matrix.packed()),
        tape.weight(f"{name}.scales", matrix.scales),
        matrix.bits,
        (matrix.codes.shape[0], inputs),
    )
    product = _multiply_codes(tape, name, hidden, rows, accuracy_level)
    return product if matrix.offsets is None else _add_offsets(tape, name, hidden, product, matrix.offsets.T)


def _add_offsets(tape: GraphTape, name: str, hidden: Value, product: Value, offsets: FloatArray) -> Value:
    """What offsets add to output n: the sum over blocks of (sum of the block's inputs) * offset[n, block]."""
    split = tape.constant("block_shape", np.array([0, -1, BLOCK], dtype=np.int64))
    last = tape.constant("last_axis", np.array([-1], dtype=np.int64))
    blocks = tape.op("Reshape", hidden, split, name=f"{name}.blocks")
    sums = tape.op("ReduceSum", blocks, last, name=f"{name}.sums", keepdims=0)
    return tape.op("Gemm", sums, tape.weight(f"{name}.offsets", offsets), product, name=f"{name}.corrected")


def _multiply_codes(tape: GraphTape, name: str, hidden: Value, rows: Rows, accuracy_level: int) -> Value:
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
        accuracy_level=accuracy_level,
    )


def add_rows(tape: GraphTape, name: str, matrix: Matrix, shape: tuple[int, int]) -> Rows:
    """Writes a table in a form whose rows can be looked up; a block matrix has neither offsets nor padding."""
    if isinstance(matrix, DenseMatrix):
        return Rows(tape.weight(f"{name}.weight", matrix.values), None, 32, shape)
    assert can_look_up(matrix, shape)
    codes = tape.weight(f"{name}.codes", matrix.packed().reshape(shape[0], -1))
    return Rows(codes, tape.weight(f"{name}.scales", matrix.scales), matrix.bits, shape)


def can_look_up(matrix: BlockMatrix, shape: tuple[int, ...]) -> bool:
    """Whether rows of a block matrix can be looked up: those with offsets, or padded, have no operator for it."""
    return matrix.offsets is None and matrix.codes.shape == shape


def add_lookup(tape: GraphTape, name: str, rows: Rows, tokens: Value) -> Value:
    """Rows of the table for ``tokens``: one axis of ``inputs`` more, in float32."""
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


def add_tied_head(tape: GraphTape, name: str, hidden: Value, rows: Rows, *, accuracy_level: int) -> Value:
    """Logits from the embedding's own rows; the file holds them once."""
    if rows.scales is None:
        return tape.op("FusedMatMul", hidden, rows.weights, name=name, domain=MICROSOFT, transB=1)
    outputs, inputs = rows.shape
    packed_shape = (outputs, -(-inputs // BLOCK), BLOCK * rows.bits // 8)
    codes = tape.alias(f"{name}.codes", rows.weights, packed_shape)
    return _multiply_codes(tape, name, hidden, Rows(codes, rows.scales, rows.bits, rows.shape), accuracy_level)

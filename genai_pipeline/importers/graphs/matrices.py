"""Weight matrices as graphs store them: dense float32, or blocks of codes with a scale each.

A block matrix of ``b`` bits stands for ``scale * (code - 2**(b-1)) + offset`` over blocks of 32 inputs, which is how
``MatMulNBits`` reads codes without zero points; offsets are there for types with a minimum and cost a second product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 32  # elements per block, in GGUF's plain quantised types and in what importers write
Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
CodeArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class DenseMatrix:
    """``values[outputs, inputs]`` in float32."""

    values: FloatArray


@dataclass(frozen=True, slots=True)
class BlockMatrix:
    """Codes ``[outputs, inputs]`` (one a byte), ``scales`` and ``offsets`` ``[outputs, blocks]``; 4 or 8 bits."""

    bits: int
    codes: CodeArray
    scales: FloatArray
    offsets: FloatArray | None = None

    def packed(self) -> CodeArray:
        """Codes as stored: ``[outputs, blocks, bytes per block]``, the earlier of two 4-bit codes in the low half."""
        outputs, inputs = self.codes.shape
        codes = self.codes if self.bits == 8 else self.codes[:, 0::2] | (self.codes[:, 1::2] << np.uint8(4))
        return np.ascontiguousarray(codes).reshape(outputs, inputs // BLOCK, BLOCK * self.bits // 8)


Matrix = DenseMatrix | BlockMatrix


def round_to_8_bits(values: FloatArray) -> BlockMatrix:
    """``values[outputs, inputs]`` as symmetric 8-bit codes; inputs are padded with zeros to whole blocks."""
    outputs, inputs = values.shape
    padded = np.pad(values, ((0, 0), (0, -inputs % BLOCK))).reshape(outputs, -1, BLOCK)
    scales = np.asarray(np.abs(padded).max(axis=2) / np.float32(127), dtype=np.float32)
    steps = np.where(scales == 0, np.float32(1), scales)[:, :, None]
    codes = np.asarray(np.rint(padded / steps) + 128, dtype=np.uint8)
    return BlockMatrix(8, codes.reshape(outputs, -1), scales)

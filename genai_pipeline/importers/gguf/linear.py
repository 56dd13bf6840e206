"""Linear maps, the embedding and the head of a GGUF decoder in each precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genai_pipeline.importers.gguf.matrices import Encoder, encode_dense, encode_exact, encode_fast
from genai_pipeline.importers.gguf.reader import GgufTensor
from genai_pipeline.importers.graphs.linear import Rows, add_product, add_rows, can_look_up
from genai_pipeline.importers.graphs.matrices import BlockMatrix
from genai_pipeline.importers.graphs.tape import GraphTape, Value


@dataclass(frozen=True, slots=True)
class Precision:
    """How matrices are stored (``encode``) and with which accuracy ``MatMulNBits`` may round its input."""

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


def add_linear(tape: GraphTape, precision: Precision, name: str, hidden: Value, tensors: Sequence[GgufTensor]) -> Value:
    """``hidden[tokens, inputs]`` times the stacked rows of ``tensors``: ``[tokens, outputs]``."""
    matrix = precision.encode(tensors)
    return add_product(tape, name, hidden, matrix, tensors[0].shape[1], accuracy_level=precision.accuracy_level)


def add_table(tape: GraphTape, precision: Precision, name: str, tensor: GgufTensor) -> Rows:
    """Writes the embedding table in a form whose rows can be looked up; where there is none as float32 values."""
    matrix = precision.encode([tensor])
    if isinstance(matrix, BlockMatrix) and not can_look_up(matrix, tensor.shape):
        matrix = encode_dense([tensor])
    return add_rows(tape, name, matrix, (tensor.shape[0], tensor.shape[1]))

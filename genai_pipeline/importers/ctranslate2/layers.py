"""The pieces that Whisper's encoder and decoder have in common, as nodes on ``[batch, positions, width]``.

Products carry no bias of their own: the norm that follows adds it with the residual, in one node.
"""

from __future__ import annotations

from dataclasses import dataclass

from genai_pipeline.importers.ctranslate2.config import WhisperConfig
from genai_pipeline.importers.ctranslate2.reader import ModelFile
from genai_pipeline.importers.graphs.linear import add_product
from genai_pipeline.importers.graphs.matrices import DenseMatrix, FloatArray, Matrix, round_to_8_bits
from genai_pipeline.importers.graphs.tape import MICROSOFT, GraphTape, Value

EPSILON = 1e-5  # of every norm


@dataclass(frozen=True, slots=True)
class Precision:
    """How weight matrices are stored: as float32, or as 8-bit codes that are multiplied with rounded inputs."""

    name: str
    rounds: bool

    @property
    def accuracy_level(self) -> int:
        """Of products with blocks of codes: integers in place of float32."""
        return 4 if self.rounds else 0

    def matrix(self, values: FloatArray) -> Matrix:
        """``values[outputs, inputs]`` as they are stored."""
        return round_to_8_bits(values) if self.rounds else DenseMatrix(values)


PRECISIONS = {precision.name: precision for precision in (Precision("float32", False), Precision("fast", True))}


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream: its value so far, and the product with its bias that the last block adds to it."""

    residual: Value
    product: Value | None = None
    bias: Value | None = None


class LayerWriter:
    """Writes parts of layers onto a tape; ``name`` is the prefix of a part's variables, e.g. "decoder/layer_0"."""

    def __init__(self, tape: GraphTape, file: ModelFile, config: WhisperConfig, precision: Precision) -> None:
        self.tape, self.file, self.config, self.precision = tape, file, config, precision

    def norm(self, stream: Stream, name: str) -> tuple[Value, Value]:
        """Layer norm of the stream with what the last block adds, and that sum."""
        width = self.config.width
        scale, shift = (self.vector(f"{name}/{part}", width) for part in ("gamma", "beta"))
        if stream.product is None:
            inputs = (stream.residual, scale, shift)
            return self.tape.op("LayerNormalization", *inputs, name=name, axis=-1, epsilon=EPSILON), stream.residual
        normed, _, _, total = self.tape.ops(
            "SkipLayerNormalization",
            *(stream.product, stream.residual, scale, shift, stream.bias),
            name=name,
            outputs=4,
            domain=MICROSOFT,
            epsilon=EPSILON,
        )
        return normed, total

    def vector(self, name: str, size: int) -> Value:
        """A weight with one axis."""
        return self.tape.weight(name, self.file.tensor(name, size))

    def product(self, name: str, hidden: Value, outputs: int, inputs: int) -> Value:
        """``hidden`` times the weight of the linear map ``name``."""
        matrix = self.precision.matrix(self.file.tensor(f"{name}/weight", outputs, inputs))
        return add_product(self.tape, name, hidden, matrix, inputs, accuracy_level=self.precision.accuracy_level)

    def bias(self, name: str, outputs: int) -> Value:
        """The bias of the linear map ``name``."""
        return self.vector(f"{name}/bias", outputs)

    def linear(self, name: str, hidden: Value, outputs: int, inputs: int) -> Value:
        """The whole linear map ``name``."""
        product = self.product(name, hidden, outputs, inputs)
        return self.tape.op("Add", product, self.bias(name, outputs), name=f"{name}/biased")

    def packed(self, name: str, hidden: Value, parts: int) -> list[Value]:
        """A linear map to several values of the model's width, apart."""
        width = self.config.width
        joined = self.linear(name, hidden, parts * width, width)
        return list(self.tape.ops("Split", joined, name=f"{name}/split", outputs=parts, axis=-1, num_outputs=parts))

    def attend(self, name: str, query: Value, key: Value, value: Value) -> Value:
        """Attention of every position to all keys; these are [b, n, width], or by head [b, heads, n, head_dim]."""
        inputs = (query, key, value)
        return self.tape.op("MultiHeadAttention", *inputs, name=name, domain=MICROSOFT, num_heads=self.config.heads)

    def project(self, name: str, residual: Value, attended: Value) -> Stream:
        """The stream after an attention block whose output map is ``name``."""
        width = self.config.width
        return Stream(residual, self.product(name, attended, width, width), self.bias(name, width))

    def feed_forward(self, name: str, stream: Stream) -> Stream:
        """The stream after the feed-forward block ``name``."""
        inner, width = self.config.feed_forward, self.config.width
        normed, residual = self.norm(stream, f"{name}/layer_norm")
        first, second = f"{name}/linear_0", f"{name}/linear_1"
        wide = self.product(first, normed, inner, width)
        active = self.tape.op("BiasGelu", wide, self.bias(first, inner), name=f"{name}/active", domain=MICROSOFT)
        return Stream(residual, self.product(second, active, width, inner), self.bias(second, width))

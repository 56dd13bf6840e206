"""The encoder graph: the features of one window in, hidden states and the keys and values of cross attention out.

Cross attention's keys and values depend on the audio alone, so the encoder computes them, once per window.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from genai_pipeline.importers.ctranslate2.config import WhisperConfig
from genai_pipeline.importers.ctranslate2.layers import LayerWriter, Precision, Stream
from genai_pipeline.importers.ctranslate2.reader import ModelFile
from genai_pipeline.importers.graphs.tape import MICROSOFT, GraphTape, Value, WeightFile


def write_encoder(file: ModelFile, config: WhisperConfig, precision: Precision, target: Path) -> None:
    """Writes ``target`` and its weights beside it as ``<target>.data``."""
    with WeightFile(target.with_name(f"{target.name}.data")) as weights:
        writer = LayerWriter(GraphTape(weights), file, config, precision)
        _add_encoder(writer)
    writer.tape.save(target, "whisper_encoder")


def _add_encoder(writer: LayerWriter) -> None:
    tape, config = writer.tape, writer.config
    stream = Stream(_add_convolutions(writer))
    for index in range(config.encoder_layers):
        stream = _add_layer(writer, f"encoder/layer_{index}", stream)
    hidden, _ = writer.norm(stream, "encoder/layer_norm")
    tape.output(hidden, "last_hidden_state", "float32", ("batch", config.states, config.width))
    for index in range(config.decoder_layers):
        _add_cross_state(writer, index, hidden)


def _add_convolutions(writer: LayerWriter) -> Value:
    """Two convolutions over time, the second of every other frame, and the sinusoids of the positions."""
    tape, config = writer.tape, writer.config
    value = tape.input("input_features", "float32", ("batch", config.mels, config.frames))
    for name, inputs, stride in (("encoder/conv1", config.mels, 1), ("encoder/conv2", config.width, 2)):
        kernel = tape.weight(f"{name}/weight", writer.file.tensor(f"{name}/weight", config.width, inputs, 3))
        operands = (value, kernel, writer.bias(name, config.width))
        value = tape.op("Conv", *operands, name=name, kernel_shape=[3], pads=[1, 1], strides=[stride])
        value = tape.op("Gelu", value, name=f"{name}/active", domain=MICROSOFT)
    by_position = tape.op("Transpose", value, name="encoder/by_position", perm=[0, 2, 1])
    name = "encoder/position_encodings/encodings"
    positions = tape.weight(name, writer.file.tensor(name, config.states, config.width))
    return tape.op("Add", by_position, positions, name="encoder/embedded")


def _add_layer(writer: LayerWriter, block: str, stream: Stream) -> Stream:
    attention = f"{block}/self_attention"
    normed, residual = writer.norm(stream, f"{attention}/layer_norm")
    query, key, value = writer.packed(f"{attention}/linear_0", normed, 3)
    attended = writer.attend(f"{attention}/attended", query, key, value)
    return writer.feed_forward(f"{block}/ffn", writer.project(f"{attention}/linear_1", residual, attended))


def _add_cross_state(writer: LayerWriter, index: int, hidden: Value) -> None:
    """Keys and values that a decoder layer attends over, by head: ``[b, heads, states, head_dim]``."""
    tape, config = writer.tape, writer.config
    name = f"decoder/layer_{index}/attention/linear_1"
    apart = tape.constant("heads_apart", np.array([0, 0, config.heads, config.head_dim], dtype=np.int64))
    for part, value in zip(("key", "value"), writer.packed(name, hidden, 2), strict=True):
        heads = tape.op("Reshape", value, apart, name=f"{name}/{part}/heads")
        state = tape.op("Transpose", heads, name=f"{name}/{part}", perm=[0, 2, 1, 3])
        shape = ("batch", config.heads, config.states, config.head_dim)
        tape.output(state, f"present.{index}.encoder.{part}", "float32", shape)

"""The decoder graph: tokens, mask, positions, its own cache and the encoder's keys and values in, logits out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genai_pipeline.importers.ctranslate2.config import WhisperConfig
from genai_pipeline.importers.ctranslate2.layers import LayerWriter, Precision, Stream
from genai_pipeline.importers.ctranslate2.reader import ModelFile
from genai_pipeline.importers.graphs.linear import Rows, add_lookup, add_rows, add_tied_head
from genai_pipeline.importers.graphs.tape import MICROSOFT, GraphTape, Value, WeightFile

_PARTS = ("key", "value")
_INT32 = 6  # onnx.TensorProto.INT32


@dataclass(frozen=True, slots=True)
class _RunShape:
    """What self attention needs to know about a run."""

    last_index: Value  # int32 [b]: index of each sequence's last token
    total: Value  # int32 scalar: length of the mask


def write_decoder(file: ModelFile, config: WhisperConfig, precision: Precision, target: Path) -> None:
    """Writes ``target`` and its weights beside it as ``<target>.data``."""
    with WeightFile(target.with_name(f"{target.name}.data")) as weights:
        writer = LayerWriter(GraphTape(weights), file, config, precision)
        _add_decoder(writer)
    writer.tape.save(target, "whisper_decoder")


def _add_decoder(writer: LayerWriter) -> None:
    tape, config = writer.tape, writer.config
    table, embedded = _add_embedding(writer)
    run = _add_run_shape(tape, tape.input("attention_mask", "int64", ("batch", "total_length")))
    stream = Stream(embedded)
    for index in range(config.decoder_layers):
        stream = _add_layer(writer, index, stream, run)
    hidden, _ = writer.norm(stream, "decoder/layer_norm")
    logits = add_tied_head(tape, "decoder/projection", hidden, table, accuracy_level=writer.precision.accuracy_level)
    tape.output(logits, "logits", "float32", ("batch", "sequence_length", config.vocabulary))


def _add_embedding(writer: LayerWriter) -> tuple[Rows, Value]:
    """The table of tokens, which the head shares, and what tokens and positions give."""
    tape, config = writer.tape, writer.config
    tokens = tape.input("input_ids", "int64", ("batch", "sequence_length"))
    places = tape.input("position_ids", "int64", ("batch", "sequence_length"))
    shape = (config.vocabulary, config.width)
    values = writer.file.tensor("decoder/embeddings/weight", *shape)
    table = add_rows(tape, "decoder/embeddings", writer.precision.matrix(values), shape)
    name = "decoder/position_encodings/encodings"
    positions = tape.weight(name, writer.file.tensor(name, config.context_length, config.width))
    return table, tape.op(
        "Add",
        add_lookup(tape, "decoder/token_rows", table, tokens),
        tape.op("Gather", positions, places, name="decoder/position_rows"),
        name="decoder/embedded",
    )


def _add_run_shape(tape: GraphTape, mask: Value) -> _RunShape:
    axis = tape.constant("mask_axis", np.array([1], dtype=np.int64))
    one = tape.constant("one", np.array(1, dtype=np.int64))
    used = tape.op("ReduceSum", mask, axis, name="used_tokens", keepdims=0)
    last = tape.op("Sub", used, one, name="last_index")
    total = tape.op("Gather", tape.op("Shape", mask, name="mask_shape"), one, name="total_length", axis=0)
    return _RunShape(
        last_index=tape.op("Cast", last, name="last_index_int32", to=_INT32),
        total=tape.op("Cast", total, name="total_length_int32", to=_INT32),
    )


def _add_layer(writer: LayerWriter, index: int, stream: Stream, run: _RunShape) -> Stream:
    block = f"decoder/layer_{index}"
    normed, residual = writer.norm(stream, f"{block}/self_attention/layer_norm")
    attended = _add_self_attention(writer, index, normed, run)
    stream = writer.project(f"{block}/self_attention/linear_1", residual, attended)
    normed, residual = writer.norm(stream, f"{block}/attention/layer_norm")
    attended = _add_cross_attention(writer, index, normed)
    stream = writer.project(f"{block}/attention/linear_2", residual, attended)
    return writer.feed_forward(f"{block}/ffn", stream)


def _add_self_attention(writer: LayerWriter, index: int, hidden: Value, run: _RunShape) -> Value:
    """Causal attention over a cache whose past and present may be one buffer; positions are in the embedding."""
    tape, config = writer.tape, writer.config
    name, width = f"decoder/layer_{index}/self_attention", config.width
    past = [
        tape.input(f"past_key_values.{index}.decoder.{part}", "float32", _cache_shape(config, "past_length"))
        for part in _PARTS
    ]
    attended, *present = tape.ops(
        "GroupQueryAttention",
        *(writer.linear(f"{name}/linear_0", hidden, 3 * width, width), None, None, *past, run.last_index, run.total),
        name=f"{name}/attended",
        outputs=3,
        domain=MICROSOFT,
        num_heads=config.heads,
        kv_num_heads=config.heads,
    )
    for part, value in zip(_PARTS, present, strict=True):
        tape.output(value, f"present.{index}.decoder.{part}", "float32", _cache_shape(config, "total_length"))
    return attended


def _add_cross_attention(writer: LayerWriter, index: int, hidden: Value) -> Value:
    """Attention over the keys and values of the whole window."""
    tape, config = writer.tape, writer.config
    name, width = f"decoder/layer_{index}/attention", config.width
    states = [
        tape.input(f"past_key_values.{index}.encoder.{part}", "float32", _cache_shape(config, config.states))
        for part in _PARTS
    ]
    query = writer.linear(f"{name}/linear_0", hidden, width, width)
    return writer.attend(f"{name}/attended", query, *states)


def _cache_shape(config: WhisperConfig, length: int | str) -> tuple[int | str, ...]:
    return ("batch", config.heads, length, config.head_dim)

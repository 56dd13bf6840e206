"""The whole decoder graph: tokens, mask and cache in, logits and cache out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from genai_pipeline.importers.gguf.architecture import DecoderConfig
from genai_pipeline.importers.gguf.layers import LayerBuilder, RunShape, Stream
from genai_pipeline.importers.gguf.linear import Precision, add_linear, add_table
from genai_pipeline.importers.gguf.reader import GgufFile
from genai_pipeline.importers.graphs.linear import Rows, add_lookup, add_tied_head
from genai_pipeline.importers.graphs.tape import GraphTape, Value, WeightFile

WeightProgress = Callable[[int, str], None]  # bytes of the source that are done, what was done


def write_decoder(
    file: GgufFile, config: DecoderConfig, precision: Precision, target: Path, progress: WeightProgress
) -> None:
    """Writes ``target`` and its weights beside it as ``<target>.data``, layer by layer."""
    with WeightFile(target.with_name(f"{target.name}.data")) as weights:
        tape = GraphTape(weights)
        _add_decoder(tape, file, config, precision, _Counter(file, progress))
    tape.save(target, config.architecture)


class _Counter:
    """Adds up the source bytes whose tensors have been written."""

    def __init__(self, file: GgufFile, progress: WeightProgress) -> None:
        self._sizes = {name: tensor.nbytes for name, tensor in file.tensors.items()}
        self._progress, self._done = progress, 0

    def finished(self, prefix: str) -> None:
        """Tensors whose names start with ``prefix`` are in the file now."""
        done = [name for name in self._sizes if name.startswith(prefix)]
        self._done += sum(self._sizes.pop(name) for name in done)
        self._progress(self._done, prefix.rstrip("."))


def _add_decoder(
    tape: GraphTape, file: GgufFile, config: DecoderConfig, precision: Precision, counter: _Counter
) -> None:
    tokens = tape.input("input_ids", "int64", ("batch", "sequence_length"))
    mask = tape.input("attention_mask", "int64", ("batch", "total_length"))
    rows = add_table(tape, precision, "token_embd", file.tensor("token_embd.weight"))
    counter.finished("token_embd.")
    run = _add_run_shape(tape, tokens, mask)
    builder = LayerBuilder(tape, file, config, precision)
    stream = Stream(_add_embedding(tape, config, rows, tokens))
    for index in range(config.layers):
        stream = builder.layer(index, stream, run)
        counter.finished(f"blk.{index}.")
    normed, _ = builder.norm(stream, "output_norm")
    hidden = tape.op("Reshape", normed, run.by_sequence, name="hidden_states")
    logits = _add_head(tape, file, config, precision, rows, hidden)
    tape.output(logits, "logits", "float32", ("batch", "sequence_length", config.vocabulary))
    counter.finished("")


def _add_embedding(tape: GraphTape, config: DecoderConfig, rows: Rows, tokens: Value) -> Value:
    joined = tape.op("Reshape", tokens, tape.constant("rest", np.array([-1], dtype=np.int64)), name="all_tokens")
    embedded = add_lookup(tape, "embedding", rows, joined)
    if config.embedding_scale is None:
        return embedded
    scale = tape.constant("embedding_scale", np.array(config.embedding_scale, dtype=np.float32))
    return tape.op("Mul", embedded, scale, name="scaled_embedding")


def _add_run_shape(tape: GraphTape, tokens: Value, mask: Value) -> RunShape:
    """Index of each sequence's last token, the length all are padded to, and how to take hidden states apart."""
    axis = tape.constant("mask_axis", np.array([1], dtype=np.int64))
    one = tape.constant("one", np.array(1, dtype=np.int64))
    used = tape.op("ReduceSum", mask, axis, name="used_tokens", keepdims=0)
    last = tape.op("Sub", used, one, name="last_index")
    total = tape.op("Gather", tape.op("Shape", mask, name="mask_shape"), one, name="total_length", axis=0)
    rest = tape.constant("rest", np.array([-1], dtype=np.int64))
    int32 = 6  # onnx.TensorProto.INT32
    return RunShape(
        last_index=tape.op("Cast", last, name="last_index_int32", to=int32),
        total=tape.op("Cast", total, name="total_length_int32", to=int32),
        by_sequence=tape.op("Concat", tape.op("Shape", tokens, name="tokens_shape"), rest, name="by_sequence", axis=0),
    )


def _add_head(
    tape: GraphTape, file: GgufFile, config: DecoderConfig, precision: Precision, rows: Rows, hidden: Value
) -> Value:
    if config.tied:
        return add_tied_head(tape, "lm_head", hidden, rows, accuracy_level=precision.accuracy_level)
    return add_linear(tape, precision, "lm_head", hidden, [file.tensor("output.weight")])

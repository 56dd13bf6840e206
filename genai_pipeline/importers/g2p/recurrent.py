"""The two graphs of a recurrent encoder-decoder.

Encoder: ``letters [b, s]``, ``mask [b, s]`` (1 for letters, 0 for padding at the end) -> ``hidden [b, h]`` after the
last letter of each row. Decoder: ``token [b, 1]``, ``hidden [b, h]`` -> ``logits [b, 1, symbols]`` and
``next_hidden [b, h]``.

A gated recurrent unit with reset r, update z and candidate n computes n = tanh(Wn x + bn + r (Rn h + cn)) and the next
state (1 - z) n + z h: the form that ONNX's GRU has with ``linear_before_reset``, its gates in the order z, r, n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from genai_pipeline.importers.graphs.matrices import Array
from genai_pipeline.importers.graphs.tape import GraphTape, Value, WeightFile

_INT32 = 6  # onnx.TensorProto.INT32


@dataclass(frozen=True, slots=True)
class Unit:
    """An embedding and a gated recurrent unit over it; gates in the order reset, update, new."""

    embedding: Array  # [symbols, e]
    input_weight: Array  # [3h, e]
    state_weight: Array  # [3h, h]
    input_bias: Array  # [3h]
    state_bias: Array  # [3h]

    @property
    def hidden(self) -> int:
        """Numbers of the state."""
        return int(self.state_weight.shape[1])


def write_encoder(path: Path, unit: Unit) -> None:
    """Write the encoder's graph."""
    with WeightFile(path.with_name(f"{path.name}.data")) as weights:
        tape = GraphTape(weights)
        letters = tape.input("letters", "int64", ("batch", "length"))
        mask = tape.input("mask", "int64", ("batch", "length"))
        used = tape.op("ReduceSum", mask, _ints(tape, "last_axis", [-1]), name="letters_used", keepdims=0)
        lengths = tape.op("Cast", used, name="lengths", to=_INT32)
        state = _add_unit(tape, unit, letters, lengths, None)
        tape.output(state, "hidden", "float32", ("batch", unit.hidden))
    tape.save(path, "encoder")


def write_decoder(path: Path, unit: Unit, head: Array, bias: Array) -> None:
    """Write one step of the decoder; ``head [symbols, h]`` and ``bias [symbols]`` make scores of its state."""
    with WeightFile(path.with_name(f"{path.name}.data")) as weights:
        tape = GraphTape(weights)
        token = tape.input("token", "int64", ("batch", 1))
        before = tape.input("hidden", "float32", ("batch", unit.hidden))
        first = _ints(tape, "first_axis", [0])
        state = _add_unit(tape, unit, token, None, tape.op("Unsqueeze", before, first, name="state_before"))
        scores = tape.op("MatMul", state, tape.weight("head", head.T), name="scores")
        scores = tape.op("Add", scores, tape.weight("head_bias", bias), name="biased_scores")
        logits = tape.op("Unsqueeze", scores, _ints(tape, "second_axis", [1]), name="logits")
        tape.output(logits, "logits", "float32", ("batch", 1, len(bias)))
        tape.output(state, "next_hidden", "float32", ("batch", unit.hidden))
    tape.save(path, "decoder")


def _add_unit(tape: GraphTape, unit: Unit, symbols: Value, lengths: Value | None, initial: Value | None) -> Value:
    """The state after the symbols [b, s]; ``lengths`` [b] of each row, ``initial`` [1, b, h]."""
    embedded = tape.op("Gather", tape.weight("embedding", unit.embedding), symbols, name="embedded", axis=0)
    steps = tape.op("Transpose", embedded, name="steps_first", perm=[1, 0, 2])
    bias = np.concatenate([_reordered(unit.input_bias), _reordered(unit.state_bias)])
    _, last = tape.ops(
        "GRU",
        steps,
        tape.weight("input_weight", _reordered(unit.input_weight)[None]),
        tape.weight("state_weight", _reordered(unit.state_weight)[None]),
        tape.weight("bias", bias[None]),
        lengths,
        initial,
        name="unit",
        outputs=2,
        hidden_size=unit.hidden,
        linear_before_reset=1,
    )
    return tape.op("Squeeze", last, _ints(tape, "first_axis", [0]), name="state")


def _reordered(gates: Array) -> Array:
    """Gates from the order reset, update, new to update, reset, new, along the first axis."""
    reset, update, new = np.split(gates, 3)
    return np.concatenate([update, reset, new])


def _ints(tape: GraphTape, name: str, values: Sequence[int]) -> Value:
    return tape.constant(name, np.array(values, np.int64))

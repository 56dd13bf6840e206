"""A closed-form decoder with recurrent state (``update: replace``): a running checksum per layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genai_pipeline.testing.builder import GraphBuilder, Value
from genai_pipeline.testing.graphs.caches import arange
from genai_pipeline.testing.graphs.decoder import logits_port, token_port
from genai_pipeline.testing.graphs.rules import HIDDEN_MODULUS

STATE_MODULUS = 251  # below 256: exact in bfloat16 too


@dataclass(frozen=True)
class RecurrentRule:
    """next token = f(last token, tokens so far, checksums of everything before): order and count both matter.

    The state of layer l is (checksum, count), [batch, 2]. A token with hidden value h makes it
    ((17 + 2l) * checksum + h + 3 * count + l + 1) mod 251, (count + 1) mod 251, and h becomes (h + checksum) mod 97.
    At the end next = first + (5 * h + 3 * token + 7 * count) mod (vocabulary - first).
    ``sequence_lengths`` keeps padded tokens out of the state; with ``padded=False`` the port is absent and rows must
    have equal numbers of new tokens.
    """

    vocabulary: int
    first: int = 0
    layers: int = 2
    dtype: str = "float32"
    padded: bool = True
    peak: float = 64.0
    logits: str = "float32"

    def bindings(self) -> Mapping[str, str]:
        """Port -> loop value, besides the tokens."""
        return {"sequence_lengths": "loop.sequence_lengths"} if self.padded else {}

    def build(self) -> GraphBuilder:
        """``input_ids``, ``sequence_lengths``, ``past_state.{layer}`` -> ``logits``, ``present_state.{layer}``."""
        b = GraphBuilder("recurrent")
        token = token_port(b)
        valid = self._valid(b, token)
        hidden = token
        count = token
        for layer in range(self.layers):
            checksum, count = self._scan(b, layer, hidden, valid)
            hidden = b.op("Mod", b.op("Add", hidden, checksum), HIDDEN_MODULUS)
        mixed = b.op("Add", b.op("Mul", hidden, 5), b.op("Mul", token, 3))
        mixed = b.op("Add", mixed, b.op("Mul", count, 7))
        answer = b.op("Add", b.op("Mod", mixed, self.vocabulary - self.first), self.first)
        logits_port(b, answer, self.vocabulary, self.peak, self.logits)
        return b

    def expected(self, prompt: Sequence[int], count: int) -> list[int]:
        """The first ``count`` tokens after ``prompt``."""
        tokens = list(prompt)
        states = [(0, 0)] * self.layers
        for index in range(len(prompt) + count - 1):
            hidden = tokens[index]
            for layer, (checksum, seen) in enumerate(states):
                checksum = ((17 + 2 * layer) * checksum + hidden + 3 * seen + layer + 1) % STATE_MODULUS
                states[layer] = (checksum, (seen + 1) % STATE_MODULUS)
                hidden = (hidden + checksum) % HIDDEN_MODULUS
            if index >= len(prompt) - 1:
                mixed = 5 * hidden + 3 * tokens[index] + 7 * states[-1][1]
                tokens.append(self.first + mixed % (self.vocabulary - self.first))
        return tokens[len(prompt) :]

    def _valid(self, b: GraphBuilder, token: Value) -> Value:
        """bool [b, S]: false where a row is padded."""
        if not self.padded:
            return b.op("GreaterOrEqual", token, 0)
        lengths = b.input("sequence_lengths", "int64", ["batch"])
        columns = b.op("Unsqueeze", arange(b, b.size(token, 1)), [0])
        return b.op("Less", columns, b.op("Unsqueeze", lengths, [1]))

    def _scan(self, b: GraphBuilder, layer: int, hidden: Value, valid: Value) -> tuple[Value, Value]:
        """Run one layer's state over the tokens: checksum and count after each, int64 [b, S]."""
        past = b.input(f"past_state.{layer}", self.dtype, ["batch", 2])
        halves = b.ops("Split", b.cast(past, "int64"), count=2, axis=1, num_outputs=2)
        start = [b.op("Squeeze", item, [1]) for item in halves]
        *final, checksum, count = b.ops(
            "Scan", *start, hidden, valid, count=4, body=self._body(b, layer),
            num_scan_inputs=2, scan_input_axes=[1, 1], scan_output_axes=[1, 1],
        )  # fmt: skip
        columns = [b.op("Unsqueeze", item, [1]) for item in final]
        present = b.cast(b.op("Concat", *columns, axis=1), self.dtype)
        b.output(f"present_state.{layer}", present, self.dtype, ["batch", 2])
        return checksum, count

    def _body(self, outer: GraphBuilder, layer: int) -> object:
        """One token: (checksum, count, hidden, valid) -> the next state, and the same again as scan outputs."""
        body = GraphBuilder(f"token_{layer}")
        names = ("checksum", "count")
        checksum, count = (body.input(f"{name}_{layer}", "int64", ["batch"]) for name in names)
        hidden = body.input(f"hidden_{layer}", "int64", ["batch"])
        valid = body.input(f"valid_{layer}", "bool", ["batch"])
        moved = body.op("Add", body.op("Mul", checksum, 17 + 2 * layer), hidden)
        moved = body.op("Add", body.op("Add", moved, body.op("Mul", count, 3)), layer + 1)
        moved = body.op("Where", valid, body.op("Mod", moved, STATE_MODULUS), checksum)
        counted = body.op("Where", valid, body.op("Mod", body.op("Add", count, 1), STATE_MODULUS), count)
        for prefix in ("next", "each"):  # the state after the token, then the same as a scan output
            for name, value in zip(names, (moved, counted), strict=True):
                body.output(f"{prefix}_{name}_{layer}", value, "int64", ["batch"])
        return outer.subgraph(body)

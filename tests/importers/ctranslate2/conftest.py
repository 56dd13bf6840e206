"""A tiny Whisper model as CTranslate2 stores it, with random weights, and what it computes, written down in numpy."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
WIDTH, HEADS, INNER, MELS, STATES, PLACES = 32, 2, 64, 8, 6, 16
ENCODER_LAYERS, DECODER_LAYERS = 2, 2
LETTERS = "abcdefgh "
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
TIMES = tuple(f"<|{i * 0.02:.2f}|>" for i in range(5))


def letter_tokens() -> list[str]:
    """The vocabulary below the special tokens, a space as GPT-2's byte-level alphabet writes it."""
    return [letter.replace(" ", "Ġ") for letter in LETTERS]


TOKENS = [*letter_tokens(), *SPECIAL, *TIMES]


def text(value: str) -> bytes:
    """A text as the format has it."""
    data = value.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


@dataclass(frozen=True)
class WhisperFile:
    """The content of a model.bin; ``pack`` gives its bytes."""

    variables: Mapping[str, Array]
    aliases: Mapping[str, str] = field(
        default_factory=lambda: {"decoder/projection/weight": "decoder/embeddings/weight"}
    )
    kind: str = "WhisperSpec"
    version: int = 6

    def having(self, **changes: Array | None) -> WhisperFile:
        """The file with other variables (``__`` for ``/``); None removes one."""
        changed = {**self.variables, **{name.replace("__", "/"): value for name, value in changes.items()}}
        return replace(self, variables={name: value for name, value in changed.items() if value is not None})

    def pack(self) -> bytes:
        """The file's bytes."""
        parts = [struct.pack("<I", self.version), text(self.kind), struct.pack("<II", 3, len(self.variables))]
        for name, value in self.variables.items():
            parts += [text(name), struct.pack(f"<B{value.ndim}I", value.ndim, *value.shape)]
            parts += [struct.pack("<BI", DTYPES[str(value.dtype)], value.nbytes), value.tobytes()]
        parts.append(struct.pack("<I", len(self.aliases)))
        parts += [text(alias) + text(name) for alias, name in self.aliases.items()]
        return b"".join(parts)


@dataclass(frozen=True)
class WhisperFolder:
    """The files of a model, by name."""

    file: WhisperFile
    tokens: list[str] = field(default_factory=lambda: list(TOKENS))
    config: Mapping[str, Any] = field(default_factory=lambda: {"suppress_ids": [0, 9], "suppress_ids_begin": [1, 9]})

    def write(self, folder: Path) -> Path:
        """Write them into a new folder."""
        folder.mkdir()
        (folder / "model.bin").write_bytes(self.file.pack())
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "vocabulary.txt").write_text("\n".join(self.tokens) + "\n")
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
        return folder


def tokenizer_json() -> dict[str, Any]:
    """A tokenizer.json without the timestamps, as the models' own."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    first = len(letter_tokens())
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": first + i, "content": content, **flags} for i, content in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(letter_tokens())}, "merges": []},
    }


def _block(rng: np.random.Generator, name: str, widths: Mapping[str, tuple[int, int]]) -> dict[str, Array]:
    """Linear maps and a norm with the spread that trained weights have."""
    made = {}
    for part, (outputs, inputs) in widths.items():
        made[f"{name}/{part}/weight"] = rng.normal(0, inputs**-0.5, (outputs, inputs)).astype(np.float16)
        made[f"{name}/{part}/bias"] = rng.normal(0, 0.1, outputs).astype(np.float16)
    made[f"{name}/layer_norm/gamma"] = rng.normal(1, 0.1, WIDTH).astype(np.float16)
    made[f"{name}/layer_norm/beta"] = rng.normal(0, 0.1, WIDTH).astype(np.float16)
    return made


def _variables() -> dict[str, Array]:
    rng = np.random.default_rng(7)
    packed, single = (3 * WIDTH, WIDTH), (WIDTH, WIDTH)
    made: dict[str, Array] = {}
    for side, layers in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
        made[f"{side}/num_heads"] = np.array(HEADS, np.int16)
        for layer in range(layers):
            block = f"{side}/layer_{layer}"
            made |= _block(rng, f"{block}/self_attention", {"linear_0": packed, "linear_1": single})
            if side == "decoder":
                cross = {"linear_0": single, "linear_1": (2 * WIDTH, WIDTH), "linear_2": single}
                made |= _block(rng, f"{block}/attention", cross)
            made |= _block(rng, f"{block}/ffn", {"linear_0": (INNER, WIDTH), "linear_1": (WIDTH, INNER)})
        made |= _block(rng, side, {})
    for name, inputs in (("conv1", MELS), ("conv2", WIDTH)):
        made[f"encoder/{name}/weight"] = rng.normal(0, (3 * inputs) ** -0.5, (WIDTH, inputs, 3)).astype(np.float16)
        made[f"encoder/{name}/bias"] = rng.normal(0, 0.1, WIDTH).astype(np.float16)
    made["encoder/position_encodings/encodings"] = rng.normal(0, 0.3, (STATES, WIDTH)).astype(np.float16)
    made["decoder/position_encodings/encodings"] = rng.normal(0, 0.3, (PLACES, WIDTH)).astype(np.float16)
    made["decoder/embeddings/weight"] = rng.normal(0, 0.5, (len(TOKENS), WIDTH)).astype(np.float16)
    choices = {"activation": 3, "pre_norm": 1, "alibi": 0, "scale_embeddings": 0, "start_from_zero_embedding": 0}
    return made | {f"decoder/{name}": np.array(value, np.int8) for name, value in choices.items()}


@pytest.fixture(scope="session")
def tiny_whisper() -> WhisperFolder:
    """A model of two layers on each side."""
    return WhisperFolder(WhisperFile(_variables()))


class Reference:
    """Whisper's transformer in float64, written from its description: pre-norm blocks, exact GELU, learned places."""

    def __init__(self, file: WhisperFile) -> None:
        self._of = {name: value.astype(np.float64) for name, value in file.variables.items()}

    def encode(self, features: Array) -> Array:
        """Hidden states [states, width] of features [mels, frames]."""
        value = self._gelu(self._convolve("encoder/conv1", features.astype(np.float64), 1))
        value = self._gelu(self._convolve("encoder/conv2", value, 2)).T
        value = value + self._of["encoder/position_encodings/encodings"]
        for layer in range(ENCODER_LAYERS):
            value = self._self_attention(f"encoder/layer_{layer}/self_attention", value, causal=False)
            value = self._feed_forward(f"encoder/layer_{layer}/ffn", value)
        return self._norm("encoder", value)

    def logits(self, tokens: list[int], hidden: Array) -> Array:
        """Logits [tokens, vocabulary] after each of the tokens."""
        places = self._of["decoder/position_encodings/encodings"][: len(tokens)]
        value = self._of["decoder/embeddings/weight"][tokens] + places
        for layer in range(DECODER_LAYERS):
            value = self._self_attention(f"decoder/layer_{layer}/self_attention", value, causal=True)
            value = self._cross_attention(f"decoder/layer_{layer}/attention", value, hidden)
            value = self._feed_forward(f"decoder/layer_{layer}/ffn", value)
        return self._norm("decoder", value) @ self._of["decoder/embeddings/weight"].T

    def cross_state(self, layer: int, hidden: Array) -> tuple[Array, Array]:
        """Keys and values [heads, states, head_dim] of a decoder layer's cross attention."""
        key, value = np.split(self._linear(f"decoder/layer_{layer}/attention/linear_1", hidden), 2, axis=-1)
        return self._heads(key), self._heads(value)

    def _convolve(self, name: str, value: Array, stride: int) -> Array:
        kernel, padded = self._of[f"{name}/weight"], np.pad(value, ((0, 0), (1, 1)))
        steps = range(0, value.shape[1], stride)
        columns = [np.tensordot(kernel, padded[:, at : at + 3], axes=2) + self._of[f"{name}/bias"] for at in steps]
        return np.stack(columns, axis=1)

    def _gelu(self, value: Array) -> Array:
        return value * 0.5 * (1 + np.vectorize(math.erf)(value / math.sqrt(2)))

    def _norm(self, name: str, value: Array) -> Array:
        mean, variance = value.mean(-1, keepdims=True), value.var(-1, keepdims=True)
        scaled = (value - mean) / np.sqrt(variance + 1e-5)
        return scaled * self._of[f"{name}/layer_norm/gamma"] + self._of[f"{name}/layer_norm/beta"]

    def _linear(self, name: str, value: Array) -> Array:
        return value @ self._of[f"{name}/weight"].T + self._of[f"{name}/bias"]

    def _heads(self, value: Array) -> Array:
        return value.reshape(len(value), HEADS, WIDTH // HEADS).swapaxes(0, 1)

    def _attend(self, query: Array, key: Array, value: Array, causal: bool) -> Array:
        scores = self._heads(query) @ key.swapaxes(1, 2) / math.sqrt(WIDTH // HEADS)
        if causal:
            scores = np.where(np.tri(len(query), key.shape[1], dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ value).swapaxes(0, 1).reshape(len(query), WIDTH)

    def _self_attention(self, name: str, value: Array, causal: bool) -> Array:
        query, key, content = np.split(self._linear(f"{name}/linear_0", self._norm(name, value)), 3, axis=-1)
        attended = self._attend(query, self._heads(key), self._heads(content), causal)
        return value + self._linear(f"{name}/linear_1", attended)

    def _cross_attention(self, name: str, value: Array, hidden: Array) -> Array:
        query = self._linear(f"{name}/linear_0", self._norm(name, value))
        key, content = np.split(self._linear(f"{name}/linear_1", hidden), 2, axis=-1)
        attended = self._attend(query, self._heads(key), self._heads(content), causal=False)
        return value + self._linear(f"{name}/linear_2", attended)

    def _feed_forward(self, name: str, value: Array) -> Array:
        return value + self._linear(
            f"{name}/linear_1", self._gelu(self._linear(f"{name}/linear_0", self._norm(name, value)))
        )


@pytest.fixture(scope="session")
def reference(tiny_whisper: WhisperFolder) -> Reference:
    """What the tiny model computes."""
    return Reference(tiny_whisper.file)


@pytest.fixture
def imported(tiny_whisper: WhisperFolder, tmp_path: Path) -> Callable[[str], Path]:
    """Imports the tiny model in a precision and gives the package folder."""
    from genai_pipeline.importers.ctranslate2 import import_ctranslate2

    def make(precision: str) -> Path:
        source = tmp_path / "source"
        if not source.exists():
            tiny_whisper.write(source)
        return import_ctranslate2(source, tmp_path / precision, precision=precision, name="tiny-whisper")

    return make

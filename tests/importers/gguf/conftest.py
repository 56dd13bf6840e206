"""Tiny GGUF files made on the spot, and a plain onnxruntime loop to run what was imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from genai_pipeline.backends.threads import POOL

TOKENS = ["<|end|>", "<|start|>", *(chr(code) for code in range(ord("!"), ord("!") + 94)), "he"]


@dataclass
class TinyModel:
    """A random decoder: metadata, and weights in the row order of the published (half-rotated) models."""

    architecture: str = "llama"
    layers: int = 2
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    feed_forward: int = 96
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)  # architecture keys beyond the common ones
    general: dict[str, Any] = field(default_factory=dict)  # whole keys; None removes one of the common ones
    types: dict[str, str] = field(default_factory=dict)  # quantisation type by end of tensor name
    seed: int = 0

    @property
    def vocabulary(self) -> int:
        return len(TOKENS)

    def weights(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        found: dict[str, np.ndarray] = {"token_embd.weight": rng.normal(0, 1, (self.vocabulary, self.hidden))}
        if not self.tied:
            found["output.weight"] = rng.normal(0, 0.2, (self.vocabulary, self.hidden))
        norm = lambda size: 1 + rng.normal(0, 0.2, size)  # noqa: E731
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for layer in range(self.layers):
            block = f"blk.{layer}"
            shapes = {"attn_q": (queries, self.hidden), "attn_k": (keys, self.hidden), "attn_v": (keys, self.hidden)}
            shapes |= {"attn_output": (self.hidden, queries), "ffn_down": (self.hidden, self.feed_forward)}
            shapes |= dict.fromkeys(("ffn_gate", "ffn_up"), (self.feed_forward, self.hidden))
            for name, shape in shapes.items():
                found[f"{block}.{name}.weight"] = rng.normal(0, 0.2, shape)
                if self.qkv_bias and name in ("attn_q", "attn_k", "attn_v"):
                    found[f"{block}.{name}.bias"] = rng.normal(0, 0.5, shape[0])
            for name in ("attn_norm", "ffn_norm", *(("post_attention_norm", "post_ffw_norm") * self.post_norms)):
                found[f"{block}.{name}.weight"] = norm(self.hidden)
            if self.qk_norm:
                found[f"{block}.attn_q_norm.weight"] = norm(self.head_dim)
                found[f"{block}.attn_k_norm.weight"] = norm(self.head_dim)
        found["output_norm.weight"] = norm(self.hidden)
        return {name: value.astype(np.float32) for name, value in found.items()}

    def keys(self) -> dict[str, Any]:
        shape = {"block_count": self.layers, "embedding_length": self.hidden, "context_length": 64}
        shape |= {"feed_forward_length": self.feed_forward, "attention.key_length": self.head_dim}
        shape |= {"attention.head_count": self.heads, "attention.head_count_kv": self.kv_heads}
        own = {**shape, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0, **self.metadata}
        tokenizer = {"model": "gpt2", "pre": "gpt-2", "tokens": TOKENS, "token_type": [3, 3, *[1] * 95]}
        tokenizer |= {"merges": ["h e"], "eos_token_id": 0, "bos_token_id": 1}
        named = {f"{self.architecture}.{key}": value for key, value in own.items()}
        named |= {f"tokenizer.ggml.{key}": value for key, value in tokenizer.items()} | self.general
        return {key: value for key, value in named.items() if value is not None}

    def write(self, path: Path, extra: Mapping[str, np.ndarray] | None = None) -> Path:
        """Writes the file as the converters do: llama's query and key rows interleaved for rotation by neighbours."""
        writer = GGUFWriter(path, self.architecture)
        for key, value in self.keys().items():
            _add(writer, key, value)
        for name, value in {**self.weights(), **(extra or {})}.items():
            self._add_tensor(writer, name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _add_tensor(self, writer: GGUFWriter, name: str, value: np.ndarray) -> None:
        if self.architecture == "llama" and (".attn_q." in name or ".attn_k." in name):
            heads = self.heads if ".attn_q." in name else self.kv_heads
            halves = value.reshape(heads, 2, self.head_dim // 2, *value.shape[1:])
            value = halves.swapaxes(1, 2).reshape(value.shape)
        kind = next((kind for end, kind in self.types.items() if name.endswith(end)), None)
        if kind in (None, "F32"):
            writer.add_tensor(name, np.ascontiguousarray(value))
        else:
            ggml = GGMLQuantizationType[kind]
            writer.add_tensor(name, quantize(np.ascontiguousarray(value), ggml), raw_dtype=ggml)


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    adders: dict[type, Callable[[str, Any], None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
        list: writer.add_array,
    }
    adders[type(value)](key, value)


class PlainDecoder:
    """Runs an imported model.onnx with nothing but onnxruntime, cache handed from step to step."""

    def __init__(self, model: Path) -> None:
        options = ort.SessionOptions()
        POOL.ensure(ort, None)  # once it exists, sessions with threads of their own are refused
        options.use_per_session_threads = False
        self._session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._names = [output.name for output in self._session.get_outputs()]
        self.reset()

    def reset(self) -> None:
        """Forgets the sequence."""
        self._length = 0
        self._past = {
            port.name: np.zeros((1, port.shape[1], 0, port.shape[3]), dtype=np.float32)
            for port in self._session.get_inputs()
            if port.name.startswith("past_key_values.")
        }

    def feed(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits ``[len(tokens), vocabulary]`` of the next tokens of the sequence."""
        self._length += len(tokens)
        mask = np.ones((1, self._length), dtype=np.int64)
        feeds = {"input_ids": np.array([tokens], dtype=np.int64), "attention_mask": mask, **self._past}
        results = dict(zip(self._names, self._session.run(None, feeds), strict=True))
        logits = results.pop("logits")[0]
        self._past = {name.replace("present", "past_key_values"): value for name, value in results.items()}
        return np.asarray(logits)


@pytest.fixture(scope="session")
def tiny_model() -> type[TinyModel]:
    return TinyModel


@pytest.fixture(scope="session")
def plain_decoder() -> type[PlainDecoder]:
    return PlainDecoder

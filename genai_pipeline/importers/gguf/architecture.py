"""What a decoder of the llama family is made of, read from GGUF metadata and from which tensors are there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf.reader import GgufFile
from genai_pipeline.importers.graphs.matrices import FloatArray

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Family:
    """What an architecture name settles that neither metadata nor tensors say."""

    interleaved_rope: bool = False  # rotates neighbours; query and key rows are stored in that order
    activation: Activation = "silu"
    scales_embedding: bool = False  # hidden states start as sqrt(width) times the embedding
    window_pattern: int = 1  # every n-th layer sees everything, the others the window; 1: the window is everywhere
    local_theta: float | None = None  # rope base of the windowed layers, where they have their own


FAMILIES: Mapping[str, Family] = {
    "llama": Family(interleaved_rope=True),  # also SmolLM, Mistral, TinyLlama and others converted as llama
    "mistral": Family(interleaved_rope=True),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma3": Family(activation="gelu_tanh", scales_embedding=True, window_pattern=6, local_theta=10000.0),
}
_ROPE_SCALINGS = ("none", "linear")
_REFUSED_KEYS = {
    "expert_count": "mixture of experts",
    "attn_logit_softcapping": "softcapped attention scores",
    "final_logit_softcapping": "softcapped logits",
    "attention.key_length_mla": "latent attention",
    "attention.temperature_scale": "attention temperature scaling",
}


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary angles of a layer: position ``p`` turns pair ``i`` by ``p / (scale * factors[i] * theta^(2i/d))``."""

    theta: float
    scale: float
    factors: tuple[float, ...] | None = None

    def tables(self, rows: int, head_dim: int) -> tuple[FloatArray, FloatArray]:
        """Cosines and sines, each ``[rows, head_dim / 2]`` in float32, computed in float64."""
        frequencies = self.theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim) / self.scale
        if self.factors is not None:
            frequencies /= np.asarray(self.factors)
        angles = np.arange(rows, dtype=np.float64)[:, None] * frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """How one layer attends: its rope and its window (a token sees itself and ``window - 1`` before it)."""

    rope: Rope
    window: int | None


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Geometry and choices of one decoder; ``tied`` means the head reuses the embedding."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    feed_forward: int
    vocabulary: int
    context_length: int
    epsilon: float
    attention_scale: float
    attention: tuple[LayerAttention, ...]  # one per layer
    interleaved_rope: bool
    activation: Activation
    embedding_scale: float | None
    tied: bool
    qk_norm: bool
    post_norms: bool


def read_config(file: GgufFile) -> DecoderConfig:
    """The decoder described by ``file``; raises ``ImportModelError`` naming what is not supported."""
    name = str(file.require("general.architecture"))
    if name not in FAMILIES:
        raise ImportModelError(
            f"{file.path}: architecture {name!r} is not supported", hint=f"supported: {', '.join(sorted(FAMILIES))}"
        )
    if file.metadata.get("split.count", 1) != 1:
        raise ImportModelError(
            f"{file.path}: one part of a model split over {file.metadata['split.count']} files",
            hint="join the parts first, e.g. with llama-gguf-split --merge",
        )
    return _ConfigReader(file, name).read()


def truncated(config: DecoderConfig, layers: int) -> DecoderConfig:
    """The decoder without its last layers: a rougher, faster one with the same tokens, e.g. to draft for the whole."""
    if not 1 <= layers <= config.layers:
        raise ImportModelError(f"the model has {config.layers} layers, not {layers}", hint=f"keep 1 to {config.layers}")
    return replace(config, layers=layers, attention=config.attention[:layers])


class _ConfigReader:
    """Reads the keys of one architecture."""

    def __init__(self, file: GgufFile, name: str) -> None:
        self._file, self._name, self._family = file, name, FAMILIES[name]

    def read(self) -> DecoderConfig:
        self._refuse_unknown_features()
        tensors = self._file.tensors
        layers, hidden, heads = (self._int(key) for key in ("block_count", "embedding_length", "attention.head_count"))
        head_dim = self._int("attention.key_length", hidden // heads)
        self._check_head_dims(head_dim)
        return DecoderConfig(
            architecture=self._name,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=self._kv_heads(heads),
            head_dim=head_dim,
            feed_forward=self._int("feed_forward_length"),
            vocabulary=self._vocabulary(),
            context_length=self._int("context_length"),
            epsilon=self._number("attention.layer_norm_rms_epsilon"),
            attention_scale=self._attention_scale(layers, hidden, heads, head_dim),
            attention=self._attention(layers, head_dim),
            interleaved_rope=self._family.interleaved_rope,
            activation=self._family.activation,
            embedding_scale=math.sqrt(hidden) if self._family.scales_embedding else None,
            tied="output.weight" not in tensors,
            qk_norm="blk.0.attn_q_norm.weight" in tensors,
            post_norms="blk.0.post_attention_norm.weight" in tensors,
        )

    def _get(self, key: str, default: Any = None, *, required: bool = False) -> Any:
        full = f"{self._name}.{key}"
        return self._file.require(full) if required else self._file.metadata.get(full, default)

    def _int(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default, required=default is None)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]  # some converters write one value per layer
        if not isinstance(value, int) or value <= 0:
            raise self._unsupported(f"{self._name}.{key} is {value!r}", "a single positive integer")
        return value

    def _number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default, required=default is None)
        if not isinstance(value, (int, float)) or value <= 0:
            raise self._unsupported(f"{self._name}.{key} is {value!r}", "a positive number")
        return float(value)

    def _kv_heads(self, heads: int) -> int:
        kv_heads = self._int("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise self._unsupported(f"{heads} heads over {kv_heads} key and value heads", "whole groups of heads")
        return kv_heads

    def _refuse_unknown_features(self) -> None:
        for key, meaning in _REFUSED_KEYS.items():
            if self._get(key):
                raise self._unsupported(f"{meaning} ({self._name}.{key} = {self._get(key)})", "models without it")

    def _unsupported(self, what: str, supported: str) -> ImportModelError:
        return ImportModelError(f"{self._file.path}: {what} is not supported", hint=f"supported: {supported}")

    def _check_head_dims(self, head_dim: int) -> None:
        for key in ("attention.value_length", "rope.dimension_count"):
            if (value := self._int(key, head_dim)) != head_dim:
                raise self._unsupported(
                    f"{self._name}.{key} = {value} with heads of {head_dim}", "one size for query, key, value and rope"
                )

    def _vocabulary(self) -> int:
        if "token_embd.weight" not in self._file.tensors:
            raise ImportModelError(f"{self._file.path}: tensor 'token_embd.weight' is missing")
        return self._file.tensors["token_embd.weight"].shape[0]

    def _attention_scale(self, layers: int, hidden: int, heads: int, head_dim: int) -> float:
        if self._get("attention.scale"):
            return self._number("attention.scale")
        # The 62-layer Gemma 3 alone scales by its width per head; its metadata does not say so.
        width = hidden / heads if (self._name, layers) == ("gemma3", 62) else head_dim
        return 1.0 / math.sqrt(width)

    def _attention(self, layers: int, head_dim: int) -> tuple[LayerAttention, ...]:
        window = self._window()
        windowed = [window is not None and is_local for is_local in self._local_layers(layers)]
        everywhere = Rope(self._number("rope.freq_base", 10000.0), self._rope_scale(), self._rope_factors(head_dim))
        local = everywhere
        if self._family.local_theta is not None:
            local = Rope(self._number("rope.freq_base_swa", self._family.local_theta), 1.0)
        return tuple(LayerAttention(local, window) if w else LayerAttention(everywhere, None) for w in windowed)

    def _window(self) -> int | None:
        """The window, or None when there is none or it holds every context."""
        if not self._get("attention.sliding_window"):
            return None
        window = self._int("attention.sliding_window")
        return window if window < self._int("context_length") else None

    def _local_layers(self, layers: int) -> list[bool]:
        declared = self._get("attention.sliding_window_pattern")
        if isinstance(declared, list):
            if len(declared) != layers:
                raise self._unsupported(f"a window pattern of {len(declared)} for {layers} layers", "one per layer")
            return [bool(is_local) for is_local in declared]
        pattern = self._family.window_pattern if declared is None else self._int("attention.sliding_window_pattern")
        return [pattern == 1 or (layer + 1) % pattern != 0 for layer in range(layers)]

    def _rope_scale(self) -> float:
        kind = str(self._get("rope.scaling.type", "none"))
        if kind not in _ROPE_SCALINGS:
            raise self._unsupported(f"rope scaling {kind!r}", ", ".join(_ROPE_SCALINGS))
        key = "rope.scaling.factor" if self._get("rope.scaling.factor") else "rope.scale_linear"
        return self._number(key, 1.0) if kind == "linear" or self._get(key) else 1.0

    def _rope_factors(self, head_dim: int) -> tuple[float, ...] | None:
        tensor = self._file.tensors.get("rope_freqs.weight")
        if tensor is None:
            return None
        factors = tuple(float(value) for value in tensor.dequantized().ravel())
        if len(factors) != head_dim // 2:
            raise self._unsupported(f"rope_freqs.weight with {len(factors)} values", f"{head_dim // 2} values")
        return factors

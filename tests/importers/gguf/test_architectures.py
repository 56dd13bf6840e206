"""Imported decoders against an independent numpy implementation of each family."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.importers.gguf import import_gguf

TOKENS = [5, 17, 3, 80, 41, 41, 9, 60, 22, 13, 71, 2]


def rms(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return values / np.sqrt((values**2).mean(-1, keepdims=True) + 1e-5) * weight


def rotate(values: np.ndarray, theta: float, factors: np.ndarray | float = 1.0) -> np.ndarray:
    """values[tokens, heads, dim]: the first half of each head is turned against the second."""
    half = values.shape[-1] // 2
    angles = np.arange(len(values))[:, None] / factors * theta ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = values[..., :half], values[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, window: int | None) -> np.ndarray:
    out = np.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for t in range(len(q)):
        start = 0 if window is None else max(0, t + 1 - window)
        for head in range(q.shape[1]):
            scores = k[start : t + 1, head // group] @ q[t, head] / math.sqrt(q.shape[-1])
            weights = np.exp(scores - scores.max())
            out[t, head] = weights / weights.sum() @ v[start : t + 1, head // group]
    return out


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class Reference:
    """The decoder in float64, written from the families' definitions and not from the importer."""

    def __init__(self, model: Any, weights: dict[str, np.ndarray]) -> None:
        self.m = model
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}
        self.gemma = model.architecture == "gemma3"
        self.rope = [(10000.0, 1.0, None)] * model.layers  # base, factors, window

    def logits(self, tokens: list[int]) -> np.ndarray:
        hidden = self.w["token_embd.weight"][tokens]
        if self.gemma:
            hidden = hidden * math.sqrt(self.m.hidden)
        for layer in range(self.m.layers):
            hidden = self.layer(layer, hidden)
        head = self.w["token_embd.weight"] if self.m.tied else self.w["output.weight"]
        return rms(hidden, self.w["output_norm.weight"]) @ head.T

    def layer(self, layer: int, hidden: np.ndarray) -> np.ndarray:
        get = lambda name: self.w[f"blk.{layer}.{name}.weight"]  # noqa: E731
        post = (lambda x, name: rms(x, get(name))) if self.m.post_norms else (lambda x, _: x)
        hidden = hidden + post(self.attention(layer, rms(hidden, get("attn_norm"))), "post_attention_norm")
        x = rms(hidden, get("ffn_norm"))
        gate, up = x @ get("ffn_gate").T, x @ get("ffn_up").T
        return hidden + post(((gelu if self.gemma else silu)(gate) * up) @ get("ffn_down").T, "post_ffw_norm")

    def attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        projected = []
        for name, heads in (("attn_q", self.m.heads), ("attn_k", self.m.kv_heads), ("attn_v", self.m.kv_heads)):
            y = x @ self.w[f"blk.{layer}.{name}.weight"].T + self.w.get(f"blk.{layer}.{name}.bias", 0.0)
            projected.append(y.reshape(len(x), heads, self.m.head_dim))
        q, k, v = projected
        if self.m.qk_norm:
            q, k = (rms(y, self.w[f"blk.{layer}.attn_{n}_norm.weight"]) for y, n in ((q, "q"), (k, "k")))
        theta, factors, window = self.rope[layer]
        out = attend(rotate(q, theta, factors), rotate(k, theta, factors), v, window)
        return out.reshape(len(x), -1) @ self.w[f"blk.{layer}.attn_output.weight"].T


def check(tmp_path: Path, plain_decoder: Any, model: Any, reference: Reference, extra: Any = None) -> None:
    """Whole prompt at once, and a prefill followed by single tokens, both give the reference's logits."""
    package = import_gguf(model.write(tmp_path / "tiny.gguf", extra), tmp_path / "package", precision="float32")
    expected = reference.logits(TOKENS)
    decoder = plain_decoder(package / "model.onnx")
    np.testing.assert_allclose(decoder.feed(TOKENS), expected, atol=1e-4)
    decoder.reset()
    steps = [decoder.feed(TOKENS[:5]), *(decoder.feed([token]) for token in TOKENS[5:])]
    np.testing.assert_allclose(np.concatenate(steps), expected, atol=1e-4)


def test_llama_rows_stored_for_rotation_by_neighbours(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    model = tiny_model("llama", tied=False)
    check(tmp_path, plain_decoder, model, Reference(model, model.weights()))


def test_llama_with_frequency_factors(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    model = tiny_model("llama", metadata={"rope.freq_base": 500000.0})
    factors = np.linspace(1, 8, model.head_dim // 2, dtype=np.float32)
    reference = Reference(model, model.weights())
    reference.rope = [(500000.0, factors, None)] * model.layers
    check(tmp_path, plain_decoder, model, reference, {"rope_freqs.weight": factors})


def test_linear_rope_scaling_and_window(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    scaling = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0, "attention.sliding_window": 4}
    model = tiny_model("llama", metadata=scaling)
    reference = Reference(model, model.weights())
    reference.rope = [(10000.0, 4.0, 4)] * model.layers
    check(tmp_path, plain_decoder, model, reference)


def test_qwen2_with_biases_on_query_key_value(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    model = tiny_model("qwen2", qkv_bias=True, tied=False)
    check(tmp_path, plain_decoder, model, Reference(model, model.weights()))


def test_llama_with_biases_permutes_them_too(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    model = tiny_model("llama", qkv_bias=True)
    check(tmp_path, plain_decoder, model, Reference(model, model.weights()))


@pytest.mark.parametrize("head_dim", [16, 32])
def test_qwen3_with_norms_on_query_and_key(tmp_path: Path, tiny_model: Any, plain_decoder: Any, head_dim: int) -> None:
    model = tiny_model("qwen3", qk_norm=True, head_dim=head_dim)
    check(tmp_path, plain_decoder, model, Reference(model, model.weights()))


def test_gemma3_with_local_and_global_layers(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    keys = {"attention.sliding_window": 4, "rope.freq_base": 1000000.0}
    keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
    model = tiny_model("gemma3", layers=7, qk_norm=True, post_norms=True, metadata=keys)
    reference = Reference(model, model.weights())
    reference.rope = [(10000.0, 1.0, 4)] * 5 + [(1000000.0, 8.0, None)] + [(10000.0, 1.0, 4)]
    check(tmp_path, plain_decoder, model, reference)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q5_1", "F16", "BF16"])
def test_exact_repeats_float32_for_every_type(tmp_path: Path, tiny_model: Any, plain_decoder: Any, kind: str) -> None:
    linears = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "token_embd")
    model = tiny_model("llama", types={f"{name}.weight": kind for name in linears})
    source = model.write(tmp_path / "tiny.gguf")
    logits = [
        plain_decoder(import_gguf(source, tmp_path / name, precision=name) / "model.onnx").feed(TOKENS)
        for name in ("float32", "exact")
    ]
    np.testing.assert_allclose(logits[1], logits[0], atol=2e-4)


def test_mixed_types_in_one_packed_product_keep_their_values(
    tmp_path: Path, tiny_model: Any, plain_decoder: Any
) -> None:
    model = tiny_model("qwen2", types={"attn_q.weight": "Q4_1", "attn_k.weight": "Q8_0", "ffn_up.weight": "Q4_0"})
    source = model.write(tmp_path / "tiny.gguf")
    logits = [
        plain_decoder(import_gguf(source, tmp_path / name, precision=name) / "model.onnx").feed(TOKENS)
        for name in ("float32", "exact")
    ]
    np.testing.assert_allclose(logits[1], logits[0], atol=2e-4)


def test_fast_rounds_rows_that_are_no_whole_blocks(tmp_path: Path, tiny_model: Any, plain_decoder: Any) -> None:
    model = tiny_model("qwen2", hidden=80, heads=4, head_dim=16, feed_forward=72)
    source = model.write(tmp_path / "tiny.gguf")
    exact, fast = (
        plain_decoder(import_gguf(source, tmp_path / name, precision=name) / "model.onnx").feed(TOKENS)
        for name in ("float32", "fast")
    )
    assert np.abs(fast - exact).max() < 0.05 * np.abs(exact).max()

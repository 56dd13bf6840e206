"""Decoders built by onnxruntime-genai's model builder: imported, they give that runtime's tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers

import genai_pipeline as gp
from genai_pipeline.importers.genai_config import import_genai_config

PROMPT = (5, 17, 90, 33, 61, 8, 44, 102, 29, 71, 13, 56)
COUNT = 24
# A cache of every token: that runtime's shorter one outgrows its buffers on the CPU.
WHOLE = {"windowed_kv_cache": False}
SIZES = {
    "vocab_size": 124,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}


def llama() -> tuple[Any, Any]:
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES, tie_word_embeddings=False)


def windowed() -> tuple[Any, Any]:
    """Every layer sees the last 6 tokens."""
    return transformers.MistralForCausalLM, transformers.MistralConfig(**SIZES, sliding_window=6)


def mixed() -> tuple[Any, Any]:
    """Two layers of three see the last 6 tokens, and scores are capped."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    options: dict[str, Any] = {"sliding_window": 6, "layer_types": kinds, "query_pre_attn_scalar": 16}
    options["tie_word_embeddings"] = False
    config = transformers.Gemma2Config(**SIZES, **options)
    return transformers.Gemma2ForCausalLM, config


def hybrid() -> tuple[Any, Any]:
    """Convolutions with state in two layers of three, attention in one."""
    config = transformers.Lfm2Config(
        **{key: value for key, value in SIZES.items() if key != "head_dim"},
        layer_types=["conv", "full_attention", "conv"],
        block_multiple_of=32,
        block_auto_adjust_ff_dim=False,
    )
    return transformers.Lfm2ForCausalLM, config


@pytest.mark.parametrize(
    ("model", "precision", "options"),
    [
        (llama, "fp32", {}),
        (llama, "int4", {}),
        (llama, "int8", {}),
        (llama, "fp32", {"prune_lm_head": True}),
        (windowed, "fp32", WHOLE),
        (mixed, "fp32", WHOLE),
        (mixed, "int4", WHOLE),
        (hybrid, "fp32", {}),
    ],
    ids=["float32", "int4", "int8", "logits of the last token", "window", "mixed", "mixed int4", "hybrid"],
)
def test_tokens_are_those_of_onnxruntime_genai(
    tiny_model: Callable[..., Path],
    genai_builder: Callable[..., Any],
    tmp_path: Path,
    model: Callable[[], tuple[Any, Any]],
    precision: str,
    options: dict[str, Any],
) -> None:
    built = genai_builder(tiny_model(*model()), precision, **options)
    found = said(built, tmp_path / "made")
    assert found == built.greedy(PROMPT, COUNT)
    assert len(set(found)) > COUNT // 4  # no model that says one thing over and over


def test_a_cache_as_short_as_the_window_changes_no_token(
    tiny_model: Callable[..., Path], genai_builder: Callable[..., Any], tmp_path: Path
) -> None:
    source = tiny_model(*windowed())
    short, whole = genai_builder(source, "fp32"), genai_builder(source, "fp32", **WHOLE)
    assert said(short, tmp_path / "made") == whole.greedy(PROMPT, COUNT)


def said(built: Any, target: Path) -> list[int]:
    """The tokens of the imported package, which has no problem at all."""
    import_genai_config(built.path, target)
    _, problems = gp.validate(target)
    assert problems == ()
    with gp.load(target) as pipe:
        return list(pipe.generate(tokens=PROMPT, max_new_tokens=COUNT).tokens)

"""Decoders that mobius-onnx exports, in both of its output formats, give the tokens of their own runtimes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
import pytest
import transformers

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError, PromptTooLongError
from genai_pipeline.importers.genai_config import import_genai_config
from genai_pipeline.importers.workflow import import_workflow

Build = Callable[..., Path]
Answer = Callable[..., list[int]]
DOCUMENT, GENAI = ("--runtime", "onnx-genai"), ("--runtime", "ort-genai")
FUSED = ("--ep", "cpu")  # GroupQueryAttention and its like instead of portable operators
PROMPTS = ([1, 17, 33, 5], [1, 9, 70, 41, 12, 13, 60, 22, 8, 91, 30, 55, 4, 6, 77])
COUNT, ENDS = 24, (2,)
WINDOW = 8
SIZES: dict[str, Any] = {
    "vocab_size": 124, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FOUR: dict[str, Any] = {**SIZES, "num_hidden_layers": 4}


def _llama(tiny_model: Build) -> Path:
    return tiny_model(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES))


def _sliding(tiny_model: Build) -> Path:
    config = transformers.MistralConfig(**SIZES, sliding_window=WINDOW)
    return tiny_model(transformers.MistralForCausalLM, config)


def _some_sliding(tiny_model: Build) -> Path:
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = transformers.Gemma3TextConfig(**FOUR, sliding_window=WINDOW, layer_types=layers)
    return tiny_model(transformers.Gemma3ForCausalLM, config)


def _hybrid(tiny_model: Build, head_dim: int = 64) -> Path:
    """A quarter of each head is turned by positions."""
    config = transformers.Qwen3NextConfig(
        **{**FOUR, "head_dim": head_dim},
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32,
        layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
    )  # fmt: skip
    return tiny_model(transformers.Qwen3NextForCausalLM, config)


def _experts(tiny_model: Build) -> Path:
    config = transformers.Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    return tiny_model(transformers.Qwen3MoeForCausalLM, config)


def _ours(package: Path, prompts: Sequence[Sequence[int]] = PROMPTS, **options: Any) -> list[list[int]]:
    """The tokens of all prompts, asked at once, so that rows share runs."""
    assert gp.validate(package)[1] == ()
    with gp.load(package) as pipe:
        streams = [
            pipe.stream(tokens=list(prompt), max_new_tokens=COUNT, temperature=0, **options) for prompt in prompts
        ]
        return [
            [event.token for event in stream if event.token is not None and event.token not in ENDS]
            for stream in streams
        ]


def _genai(folder: Path, prompt: Sequence[int]) -> list[int]:
    """The tokens of onnxruntime-genai."""
    model = og.Model(str(folder))
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + COUNT)
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(prompt, np.int32))
    found: list[int] = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return [token for token in found if token not in ENDS]


@pytest.mark.parametrize("options", [(), FUSED], ids=["portable", "fused"])
@pytest.mark.parametrize("make", [_llama, _some_sliding, _experts])
def test_a_document_of_a_decoder_whose_cache_grows(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, plain: Answer, original: Answer, make: Build, options: Any
) -> None:
    source = make(tiny_model)
    folder = mobius_build(source, *DOCUMENT, *options)
    import_workflow(folder, tmp_path / "made")
    expected = [original(source, prompt, COUNT, ENDS) for prompt in PROMPTS]
    assert _ours(tmp_path / "made") == expected
    assert [plain(folder, prompt, COUNT, ENDS) for prompt in PROMPTS] == expected
    assert (tmp_path / "made" / "model.onnx.data").samefile(folder / "model.onnx.data")


@pytest.mark.parametrize("options", [(), FUSED], ids=["portable", "fused"])
@pytest.mark.parametrize("make", [_llama, _sliding, _some_sliding])
def test_a_genai_config_of_the_same_decoders(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, make: Build, options: Any
) -> None:
    folder = mobius_build(make(tiny_model), *GENAI, *options)
    import_genai_config(folder, tmp_path / "made")
    assert _ours(tmp_path / "made") == [_genai(folder, prompt) for prompt in PROMPTS]
    assert (tmp_path / "made" / "model.onnx.data").samefile(folder / "model.onnx.data")


def test_a_static_cache_with_heads_side_by_side(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, plain: Answer, original: Answer
) -> None:
    source = _llama(tiny_model)
    folder = mobius_build(source, *DOCUMENT, "--static-cache", "--max-seq-len", "64")
    import_workflow(folder, tmp_path / "made")
    expected = [original(source, prompt, COUNT, ENDS) for prompt in PROMPTS]
    assert _ours(tmp_path / "made") == expected
    assert [plain(folder, prompt, COUNT, ENDS) for prompt in PROMPTS] == expected
    assert "context_length: 64" in (tmp_path / "made" / "inference_metadata.yaml").read_text()


@pytest.mark.parametrize("options", [(), FUSED], ids=["portable", "fused"])
def test_recurrent_state_between_layers_of_attention(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, plain: Answer, original: Answer, options: tuple[str, ...]
) -> None:
    source = _hybrid(tiny_model)
    folder = mobius_build(source, *DOCUMENT, *options)
    import_workflow(folder, tmp_path / "made")
    expected = [original(source, prompt, COUNT, ENDS) for prompt in PROMPTS]
    assert _ours(tmp_path / "made") == expected
    assert [plain(folder, prompt, COUNT, ENDS) for prompt in PROMPTS] == expected


def test_heads_that_turn_too_few_channels_for_the_fused_kernel_are_refused(
    tmp_path: Path, tiny_model: Build, mobius_build: Build
) -> None:
    folder = mobius_build(_hybrid(tiny_model, head_dim=16), *DOCUMENT, *FUSED)
    with pytest.raises(ImportRefusedError, match="turns 4 channels of a head, and its kernel only multiples of 16"):
        import_workflow(folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_window_that_attention_operators_have(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, original: Answer
) -> None:
    source = _sliding(tiny_model)
    import_workflow(mobius_build(source, *DOCUMENT, *FUSED), tmp_path / "made")
    assert _ours(tmp_path / "made") == [original(source, prompt, COUNT, ENDS) for prompt in PROMPTS]


def test_a_window_that_the_portable_graph_lost_bounds_the_context(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, original: Answer
) -> None:
    source = _sliding(tiny_model)
    report = import_workflow(mobius_build(source, *DOCUMENT), tmp_path / "made")
    assert f"limits.context_length: {WINDOW}, as the graph attends to every token" in report.text()
    (short, long) = PROMPTS
    with gp.load(tmp_path / "made") as pipe:
        found = list(pipe.generate(tokens=list(short), temperature=0).tokens)
        assert found == original(source, short, WINDOW - len(short), ENDS)
        with pytest.raises(PromptTooLongError):
            pipe.generate(tokens=list(long), temperature=0)

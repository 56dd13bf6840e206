"""Encoder-decoders of text that mobius-onnx exports give the tokens of transformers here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.workflow import import_workflow
from genai_pipeline.importers.workflow.translation import CONTEXT

Build = Callable[..., Path]
DOCUMENT = ("--runtime", "onnx-genai")
PROMPTS = ([9, 21, 37, 94], [60, 41, 12, 13, 70, 22, 8, 91, 30, 55, 4, 6, 77], [5])
COUNT, END, PAD = 20, 2, 3
TOKENS: dict[str, Any] = {"vocab_size": 124, "bos_token_id": 1, "eos_token_id": END, "pad_token_id": PAD}


def _distances(tiny_model: Build) -> Path:
    """Attention by distances, which have no longest text."""
    config = transformers.T5Config(
        **TOKENS, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_decoder_layers=2, num_heads=4,
        decoder_start_token_id=PAD, tie_word_embeddings=False,
    )  # fmt: skip
    return tiny_model(transformers.T5ForConditionalGeneration, config)


def _positions(tiny_model: Build) -> Path:
    """Positions that are looked up, and an answer that starts with the end token."""
    config = transformers.BartConfig(
        **TOKENS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=128, decoder_start_token_id=END,
        forced_eos_token_id=None, tie_word_embeddings=False,
    )  # fmt: skip
    return tiny_model(transformers.BartForConditionalGeneration, config)


def _original(source: Path, prompt: Sequence[int]) -> list[int]:
    """Greedy tokens of transformers."""
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(source, dtype=torch.float32).eval()
    tokens = [model.config.decoder_start_token_id]
    while len(tokens) <= COUNT:
        with torch.no_grad():
            answer = model(input_ids=torch.tensor([prompt]), decoder_input_ids=torch.tensor([tokens]))
        tokens.append(int(answer.logits[0, -1].argmax()))
        if tokens[-1] == END:
            return tokens[1:-1]
    return tokens[1:]


@pytest.mark.parametrize(("make", "context"), [(_distances, CONTEXT), (_positions, 128)])
def test_a_document_with_the_models_own_settings(
    tmp_path: Path, tiny_model: Build, mobius_build: Build, make: Build, context: int
) -> None:
    source = make(tiny_model)
    folder = mobius_build(source, *DOCUMENT)
    shutil.copy(source / "generation_config.json", folder)
    import_workflow(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    with gp.load(tmp_path / "made") as pipe:
        streams = [pipe.stream(tokens=list(prompt), max_new_tokens=COUNT) for prompt in PROMPTS]
        found = [[event.token for event in stream if event.token not in (None, END)] for stream in streams]
    assert found == [_original(source, prompt) for prompt in PROMPTS]
    assert len({token for tokens in found for token in tokens}) > 3  # the weights make answers that differ
    assert f"context_length: {context}" in (tmp_path / "made" / "inference_metadata.yaml").read_text()
    for part in ("encoder", "decoder"):
        data = f"{part}/model.onnx.data"
        assert (tmp_path / "made" / data).samefile(folder / data)


def test_without_the_models_settings_the_start_of_an_answer_is_asked_for(
    tmp_path: Path, tiny_model: Build, mobius_build: Build
) -> None:
    folder = mobius_build(_distances(tiny_model), *DOCUMENT)
    with pytest.raises(ImportRefusedError, match="decoder_start_token_id: missing"):
        import_workflow(folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()

"""Tiny models with random weights, and packages that published builders make of them.

Everything here needs the extra ``builders``: what is missing fails, nothing is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
import pytest
import tokenizers
import torch
import transformers

WORDS = 120  # plain words of the tiny vocabulary: w0 to w119
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
SEED = 20
SPREAD = 2.0  # standard deviation of a weight's contribution to what it makes


@dataclass(frozen=True)
class Built:
    """What a builder wrote, and the model it wrote it from."""

    path: Path
    source: Path

    def greedy(self, prompt: Sequence[int], count: int, **inputs: Any) -> list[int]:
        """The tokens of onnxruntime-genai, up to and without an end token; ``inputs``: arrays by name."""
        model = og.Model(str(self.path))
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + count)
        generator = og.Generator(model, params)
        for name, value in inputs.items():
            generator.set_model_input(name, value)
        generator.append_tokens(np.array(prompt, np.int32))
        ends, tokens = _ends(self.path), []
        while not generator.is_done():
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token in ends:
                break
            tokens.append(token)
        return tokens


def _ends(path: Path) -> frozenset[int]:
    found = json.loads((path / "genai_config.json").read_text())["model"]["eos_token_id"]
    return frozenset(found if isinstance(found, list) else [found])


def write_tokenizer(folder: Path, special: Sequence[str]) -> None:
    """A tokenizer of words, saved as transformers does."""
    vocabulary = {text: index for index, text in enumerate([*special, *(f"w{index}" for index in range(WORDS))])}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    model.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in special])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    fast.save_pretrained(folder)


def spread(model: Any) -> None:
    """Random weights, spread so far that the likeliest tokens stand out."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.copy_(torch.randn(weight.shape, generator=generator) * SPREAD / weight.shape[-1] ** 0.5)
            elif "bias" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``tiny_model(transformers.LlamaForCausalLM, config)``: a folder with random weights and a tokenizer."""

    def make(kind: Any, config: Any, special: Sequence[str] = SPECIAL) -> Path:
        folder = tmp_path_factory.mktemp("source")
        model = kind(config)
        spread(model)
        model.save_pretrained(folder)
        write_tokenizer(folder, special)
        return folder

    return make


@pytest.fixture(scope="session")
def genai_builder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Built]:
    """``genai_builder(source, "fp32", exclude_embeds=True)``: the folder that onnxruntime-genai's builder writes."""

    def build(source: Path, precision: str, **options: object) -> Built:
        target = tmp_path_factory.mktemp("built")
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder"]
        command += ["-i", str(source), "-o", str(target), "-p", precision, "-e", "cpu"]
        command += ["-c", str(tmp_path_factory.mktemp("cache"))]
        if options:
            command += ["--extra_options", *(f"{key}={str(value).lower()}" for key, value in options.items())]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
        return Built(target, source)

    return build

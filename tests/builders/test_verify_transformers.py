"""``verify`` against the original model in transformers: a package that a builder made of it gives its tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from typer.testing import CliRunner

from genai_pipeline.cli.main import app
from genai_pipeline.importers.genai_config import import_genai_config

SIZES = {
    "vocab_size": 124,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}
PROMPTS = "w5 w17 w90 w33\nw61 w8 w44\n"


def verified(package: Path, model: Path, prompts: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and report of the command."""
    prompts.write_text(PROMPTS)
    asked = ["verify", str(package), "--reference", "transformers", "--model", str(model)]
    result = CliRunner().invoke(app, [*asked, "--prompts", str(prompts), "--tokens", "12", "--json"])
    assert result.stdout, result.stderr
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def original(tiny_model: Callable[..., Path]) -> Path:
    return tiny_model(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES, tie_word_embeddings=False))


@pytest.fixture
def package(original: Path, genai_builder: Callable[..., Any], tmp_path: Path) -> Path:
    import_genai_config(genai_builder(original, "fp32").path, tmp_path / "package")
    return tmp_path / "package"


def test_the_original_model_gives_the_same_tokens(package: Path, original: Path, tmp_path: Path) -> None:
    code, report = verified(package, original, tmp_path / "prompts.txt")
    assert (code, report["passed"]) == (0, True)
    assert report["reference"]["name"] == "transformers"
    assert set(report["reference"]["versions"]) == {"transformers", "torch"}
    assert [len(prompt["kl"]) for prompt in report["prompts"]] == [12, 12]


def test_another_model_is_told_apart(package: Path, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    config = transformers.LlamaConfig(**{**SIZES, "num_hidden_layers": 3}, tie_word_embeddings=False)
    other = tiny_model(transformers.LlamaForCausalLM, config)
    code, report = verified(package, other, tmp_path / "prompts.txt")
    assert (code, report["passed"]) == (1, False)

"""Folders made for onnxruntime-genai out of closed-form packages, and that runtime's own answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.testing import TinyPackage, write_package

CONTEXT = 256


@dataclass(frozen=True)
class GenaiFolder:
    """A source folder, and the package it was made of, whose twin knows the answers."""

    path: Path
    package: TinyPackage

    def reconfigure(self, edit: Callable[[dict[str, Any]], object]) -> None:
        """Changes genai_config.json."""
        config = json.loads((self.path / "genai_config.json").read_text())
        edit(config)
        write_config(self.path, config)

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """The tokens of onnxruntime-genai, end tokens included."""
        import onnxruntime_genai

        model = onnxruntime_genai.Model(str(self.path))
        params = onnxruntime_genai.GeneratorParams(model)
        params.set_search_options(max_length=len(prompt) + count)
        generator = onnxruntime_genai.Generator(model, params)
        generator.append_tokens(np.array(prompt, np.int32))
        tokens: list[int] = []
        while not generator.is_done():
            generator.generate_next_token()
            tokens.append(int(generator.get_next_tokens()[0]))
        return tokens


@pytest.fixture
def genai_folder(tmp_path: Path) -> Callable[..., GenaiFolder]:
    """``genai_folder("kv", edit=..., update="append")``: ``edit`` gets the config before it is written."""

    def make(
        kind: str = "kv",
        *,
        edit: Callable[[dict[str, Any]], object] | None = None,
        name: str = "source",
        **options: Any,
    ) -> GenaiFolder:
        package = write_package(tmp_path / name, kind, context_length=CONTEXT, **options)
        config = decoder_config(package)
        if edit is not None:
            edit(config)
        (package.path / "inference_metadata.yaml").unlink()
        write_config(package.path, config)
        return GenaiFolder(package.path, package)

    return make


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Writes genai_config.json."""
    (folder / "genai_config.json").write_text(json.dumps(config), encoding="utf-8")


def decoder_config(package: TinyPackage) -> dict[str, Any]:
    """What onnxruntime-genai's model builder writes for such a decoder."""
    return {
        "model": {
            "type": "llama",
            "bos_token_id": package.vocabulary.id("<s>"),
            "eos_token_id": list(package.end_ids),
            "pad_token_id": package.end_ids[0],
            "context_length": CONTEXT,
            "vocab_size": len(package.vocabulary),
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": 8,
                "hidden_size": 16,
                "num_attention_heads": 2,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"do_sample": False, "max_length": CONTEXT, "past_present_share_buffer": True},
    }

"""Calls of operations as the engine makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from genai_pipeline.metadata.call_parameters import call_values
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import operation
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location

Call = Callable[..., Mapping[str, Any]]
STAMPS = [f"<|{tick * 0.5:.2f}|>" for tick in range(61)]
WORDS = ["▁ever", "▁tried", "▁failed", "▁no", "▁matter", "▁try", "▁again", "ing", ".", "▁"]


@pytest.fixture(scope="session")
def call() -> Call:
    """Runs an operation with values for all its parameters."""

    def run(name: str, inputs: Mapping[str, Any], context: OpContext | None = None, **params: Any) -> Mapping[str, Any]:
        found = operation(name)
        values = call_values(params, found.spec.parameters, lambda name: pytest.fail(name))
        return found.run(inputs, values, context or OpContext(stage="here"))

    return run


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Words by Metaspace, timestamps as added tokens, and <s> and </s> as control tokens."""
    vocabulary = {text: index for index, text in enumerate(["<unk>", *WORDS])}
    built = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.decoder = decoders.Metaspace()
    built.add_special_tokens(["<s>", "</s>"])
    built.add_tokens([tokenizers.AddedToken(text, special=False) for text in STAMPS])
    folder = tmp_path_factory.mktemp("tokenizer")
    built.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(Path(folder), TokenizerSpec(Location("x.yaml"), "main", "tokenizer.json", eos=("</s>",)))


@pytest.fixture
def spoken(tokenizer: Tokenizer) -> OpContext:
    """A context that has the tokenizer."""
    return OpContext({"main": tokenizer}, stage="here")

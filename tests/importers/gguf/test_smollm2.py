"""The real model: float32 repeats the reference, exact repeats float32, fast stays inside its bound."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from genai_pipeline.importers.gguf import import_gguf

CASES = json.loads((Path(__file__).parents[2] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]
FAST_BOUND = 5e-3  # mean Kullback-Leibler divergence from float32, in nats


@pytest.fixture(scope="module")
def packages(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    folder = tmp_path_factory.mktemp("smollm2")
    precisions = ("float32", "exact", "fast")
    yield {name: import_gguf(smollm2_gguf, folder / name, precision=name) for name in precisions}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def forced(packages: dict[str, Path], plain_decoder: Any) -> dict[str, list[np.ndarray]]:
    """Logits of every case's prompt and greedy tokens, by precision."""
    found = {}
    for name, package in packages.items():
        decoder = plain_decoder(package / "model.onnx")
        found[name] = [_forced(decoder, case) for case in CASES]
    return found


def _forced(decoder: Any, case: dict[str, Any]) -> np.ndarray:
    decoder.reset()
    return np.asarray(decoder.feed(case["prompt_tokens"] + case["greedy_tokens"]))


def divergence(reference: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Kullback-Leibler divergence of each row's distribution from the reference's."""
    logs = []
    for logits in (reference.astype(np.float64), other.astype(np.float64)):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        logs.append(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
    return np.asarray((np.exp(logs[0]) * (logs[0] - logs[1])).sum(axis=-1))


@pytest.mark.parametrize("case", CASES, ids=[case["prompt"][:20] for case in CASES])
def test_float32_gives_the_reference_tokens(
    packages: dict[str, Path], plain_decoder: Any, case: dict[str, Any]
) -> None:
    decoder = plain_decoder(packages["float32"] / "model.onnx")
    logits = decoder.feed(case["prompt_tokens"])[-1]
    best = np.argsort(-logits)[:5]
    assert best.tolist() == [token for token, _ in case["first_logits_top5"]]
    np.testing.assert_allclose(logits[best], [value for _, value in case["first_logits_top5"]], atol=2e-3)
    tokens = []
    while len(tokens) < len(case["greedy_tokens"]):
        tokens.append(int(logits.argmax()))
        logits = decoder.feed(tokens[-1:])[-1]
    assert tokens == case["greedy_tokens"]


def test_exact_repeats_float32(forced: dict[str, list[np.ndarray]]) -> None:
    for reference, other in zip(forced["float32"], forced["exact"], strict=True):
        np.testing.assert_allclose(other, reference, atol=1e-3)


def test_fast_stays_inside_its_bound(forced: dict[str, list[np.ndarray]]) -> None:
    rows = [divergence(*pair) for pair in zip(forced["float32"], forced["fast"], strict=True)]
    answers = [row[len(case["prompt_tokens"]) - 1 : -1] for row, case in zip(rows, CASES, strict=True)]
    assert np.concatenate(rows).mean() <= FAST_BOUND
    assert np.concatenate(answers).mean() <= FAST_BOUND


def test_the_tokenizer_encodes_the_reference_prompts(packages: dict[str, Path]) -> None:
    tokenizer = Tokenizer.from_file(str(packages["fast"] / "tokenizer.json"))
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    for case in CASES:
        turns = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{case['prompt']}<|im_end|>\n"
        assert tokenizer.encode(turns + "<|im_start|>assistant\n").ids == case["prompt_tokens"]
        assert tokenizer.decode(case["greedy_tokens"], skip_special_tokens=False) == case["text"]


def test_stored_sizes_follow_the_precision(packages: dict[str, Path]) -> None:
    sizes = {name: (package / "model.onnx.data").stat().st_size for name, package in packages.items()}
    assert sizes["fast"] < 120e6 < sizes["exact"] < 210e6 < 500e6 < sizes["float32"] < 560e6

"""minilm: what means the same is near, what does not is far; each text has its vector in any company."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

import genai_pipeline as gp
from genai_pipeline.importers.pull import pull

EATING = "A man is eating food."
PARAPHRASE = "A man is eating a piece of bread."
UNRELATED = ("The stock market fell sharply today.", "Interest rates rose by half a percent.")
TEXTS = [
    *(EATING, PARAPHRASE, *UNRELATED),
    "",
    "Rain.",
    "How do I reset my password? I have tried twice, and no mail with a link has come.",
    "Ünïcödé, 中文 and emoji 🎉 are text too.",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return pull("minilm")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[gp.Pipeline]:
    with gp.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def reference(folder: Path, run_graph: Any) -> Any:
    """Mean of the last hidden states, divided by its length, of one text alone."""
    tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), folder / "model.onnx"
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)

    def embed(text: str) -> NDArray[np.float32]:
        ids = np.array([tokenizer.encode(text).ids])
        mask, types = np.ones_like(ids), np.zeros_like(ids)
        (states,) = run_graph(model, input_ids=ids, attention_mask=mask, token_type_ids=types)
        mean = states[0].mean(0)
        vector: NDArray[np.float32] = mean / np.linalg.norm(mean)
        return vector

    return embed


def test_paraphrases_are_near_and_unrelated_texts_are_not(pipe: gp.Pipeline) -> None:
    eating, paraphrase, *others = pipe.embed([EATING, PARAPHRASE, *UNRELATED])
    assert eating @ paraphrase == pytest.approx(0.75, abs=0.01)
    assert eating @ others[0] == pytest.approx(0, abs=0.01)
    assert [float(eating @ other) for other in others] == pytest.approx([0, 0], abs=0.05)


def test_vectors_are_those_of_the_graph_alone(pipe: gp.Pipeline, reference: Any) -> None:
    vectors = pipe.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 384)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(vector, reference(text), atol=1e-6)


def test_a_text_has_its_vector_in_any_company(pipe: gp.Pipeline) -> None:
    together = pipe.embed(TEXTS)
    alone = np.stack([pipe.embed(text) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_eight_requests_share_runs(pipe: gp.Pipeline, together: Any, shared_runs: Any) -> None:
    requests = [{"prompt": TEXTS[i:] + TEXTS[:i]} for i in range(8)]
    alone = [pipe.run(request)["embedding"] for request in requests]
    before = shared_runs(pipe)
    for ours, expected in zip(together(pipe, requests), alone, strict=True):
        np.testing.assert_allclose(ours["embedding"], expected, atol=1e-6)
    assert shared_runs(pipe) > before


def test_of_a_long_text_512_tokens_count(pipe: gp.Pipeline, reference: Any) -> None:
    long = "word " * 1000
    vector = pipe.embed(long)
    np.testing.assert_allclose(vector, reference(long), atol=1e-6)
    np.testing.assert_array_equal(vector, pipe.embed("word " * 510))
    assert not np.array_equal(vector, pipe.embed("word " * 509))

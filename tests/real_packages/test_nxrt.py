"""Real weights on the backend nxrt give what they give on ONNX Runtime, or what is missing is named at load."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import GraphLoadError

PROMPT = "Write a short story about a lighthouse keeper."
BECKETT = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."  # as on ort: test_whisper.py
TEXTS = ["A man is eating food.", "Someone eats a meal.", "The sky is very blue today over the hills"]


def test_smollm2_gives_the_same_tokens() -> None:
    found = {}
    for backend in ("ort", "nxrt"):
        with gp.load("smollm2-135m", precision="float32", backend=backend) as pipe:
            found[backend] = pipe.generate(PROMPT, temperature=0, max_new_tokens=12).tokens
    assert found["nxrt"] == found["ort"]


def test_minilm_gives_the_same_vectors() -> None:
    found = {}
    for backend in ("ort", "nxrt"):
        with gp.load("minilm", backend=backend) as pipe:
            found[backend] = np.array(pipe.embed(TEXTS))
    np.testing.assert_allclose(found["nxrt"], found["ort"], atol=1e-3)


def test_whisper_hears_the_words_that_are_said(beckett_wav: Path) -> None:
    with gp.load("whisper-tiny.en", backend="nxrt") as pipe:
        assert pipe.transcribe(beckett_wav).text == BECKETT


@pytest.mark.parametrize(
    ("package", "missing"),
    [
        ("g2p-en", r"ai\.onnx::GRU, node unit"),
        ("piper-joe", r"ai\.onnx::GRU, node unit"),
        ("silero-vad", "ai.onnx::LSTM, node /model/decoder/rnn/LSTM"),  # in a branch of an If
    ],
)
def test_an_operator_that_it_lacks_is_named_at_load(package: str, missing: str) -> None:
    with pytest.raises(GraphLoadError, match=f"nxrt has no kernel for the operator {missing}") as found:
        gp.load(package, backend="nxrt")
    assert found.value.hint == "use the backend ort"

"""Folders that mobius-onnx writes, and what plain onnxruntime says their graphs answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers
from mobius.__main__ import main as mobius

_DTYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64}


@pytest.fixture(scope="session")
def mobius_build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``mobius_build(source, "--runtime", "onnx-genai")``: the folder that the command writes."""

    def build(source: Path, *options: str) -> Path:
        target = tmp_path_factory.mktemp("mobius")
        mobius(["build", "--config", str(source), str(target), *options])
        return target

    return build


def plain_answer(folder: Path, prompt: Sequence[int], count: int, ends: Sequence[int] = ()) -> list[int]:
    """Greedy tokens of a graph in plain onnxruntime, which reads the whole text anew for each token, without a past."""
    options = ort.SessionOptions()
    options.use_per_session_threads = False  # the process has one pool of threads once a package is loaded
    session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        logits = session.run(["logits"], {port.name: _value(port, tokens) for port in session.get_inputs()})[0]
        tokens.append(int(logits[0, -1].argmax()))
        if tokens[-1] in ends:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) :]


def _value(port: Any, tokens: Sequence[int]) -> np.ndarray:
    length = len(tokens)
    known = {
        "input_ids": np.array([tokens], np.int64),
        "attention_mask": np.ones((1, length), np.int64),
        "position_ids": np.arange(length, dtype=np.int64)[None],
        "write_indices": np.zeros(1, np.int64),
        "nonpad_kv_seqlen": np.array([length], np.int64),
    }
    if port.name in known:
        return known[port.name]
    shape = [size if isinstance(size, int) else 1 if axis == 0 else 0 for axis, size in enumerate(port.shape)]
    return np.zeros(shape, _DTYPES[port.type])


def torch_answer(source: Path, prompt: Sequence[int], count: int, ends: Sequence[int] = ()) -> list[int]:
    """Greedy tokens of transformers with the weights that a package was built from."""
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    tokens = list(prompt)
    while len(tokens) < len(prompt) + count:
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
        if tokens[-1] in ends:
            return tokens[len(prompt) : -1]
    return tokens[len(prompt) :]


@pytest.fixture(scope="session")
def plain() -> Callable[..., list[int]]:
    """``plain(folder, prompt, count)``: greedy tokens of plain onnxruntime."""
    return plain_answer


@pytest.fixture(scope="session")
def original() -> Callable[..., list[int]]:
    """``original(source, prompt, count)``: greedy tokens of transformers."""
    return torch_answer

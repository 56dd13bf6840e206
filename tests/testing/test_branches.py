"""The decoders split as exporters split them answer as the whole ones do, and wrongly where they must not be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from genai_pipeline.backends.threads import POOL
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.branches import SWITCH, first_graph, later_graph, merged_graph
from genai_pipeline.testing.graphs.caches import AppendCache, Geometry
from genai_pipeline.testing.graphs.decoder import Decoder
from genai_pipeline.testing.kinds import KindOptions, sum_rule
from genai_pipeline.testing.vocabulary import words

VOCABULARY = words()
RULE = sum_rule(KindOptions(update="append"), VOCABULARY)
DECODER = Decoder(RULE, AppendCache(), Geometry())
Pasts = dict[str, Any]


def answer(folder: Path, graph: GraphBuilder, tokens: list[int], pasts: Pasts, **more: Any) -> tuple[int, Pasts]:
    """The likeliest token after ``tokens``, and the past of what follows."""
    POOL.ensure(ort, None)  # once it exists, sessions with threads of their own are refused
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    path = graph.save(folder / "graph.onnx")
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    before = next(iter(pasts.values())).shape[2] if pasts else 0
    feeds = {
        "input_ids": np.array([tokens]),
        "position_ids": np.arange(before, before + len(tokens))[np.newaxis],
        "attention_mask": np.ones((1, before + len(tokens)), np.int64),
        **pasts, **more,
    }  # fmt: skip
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, feeds), strict=True))
    presents = {name.replace("present", "past_key_values"): found[name] for name in names if name != "logits"}
    return int(found["logits"][0, -1].argmax()), presents


def nothing() -> Pasts:
    """A past of no tokens."""
    parts = [f"past_key_values.{layer}.{part}" for layer in range(RULE.layers) for part in ("key", "value")]
    return {name: np.zeros((1, 2, 0, 8), np.float32) for name in parts}


@pytest.mark.parametrize("merged", [False, True])
def test_a_first_run_and_later_ones_of_one_token(tmp_path: Path, merged: bool) -> None:
    prompt = VOCABULARY.encode("hello")
    first, second = RULE.expected(prompt, 2)
    switch = [{SWITCH: np.array([later])} if merged else {} for later in (False, True)]
    graphs = [merged_graph(DECODER) if merged else make(DECODER) for make in (first_graph, later_graph)]
    found, pasts = answer(tmp_path, graphs[0], prompt, nothing() if merged else {}, **switch[0])
    assert found == first
    assert answer(tmp_path, graphs[1], [first], pasts, **switch[1])[0] == second


def test_several_tokens_on_a_past_are_answered_wrongly(tmp_path: Path) -> None:
    prompt = VOCABULARY.encode("hello")
    found, pasts = answer(tmp_path, later_graph(DECODER), prompt, nothing())
    assert found != RULE.expected(prompt, 1)[0]
    _, pasts = answer(tmp_path, first_graph(DECODER), prompt[:2], {})
    assert answer(tmp_path, later_graph(DECODER), prompt[2:], pasts)[0] != RULE.expected(prompt, 1)[0]


def test_a_first_run_of_the_merged_graph_minds_no_past(tmp_path: Path) -> None:
    prompt = VOCABULARY.encode("hello")
    _, pasts = answer(tmp_path, first_graph(DECODER), prompt, {})
    first = {SWITCH: np.array([False])}
    zeros = {name: np.full_like(value, 3.0)[:, :, :0] for name, value in pasts.items()}
    assert answer(tmp_path, merged_graph(DECODER), prompt, zeros, **first)[0] == RULE.expected(prompt, 1)[0]

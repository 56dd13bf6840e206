"""Drafts of graphs that score frames (CTC): answered in the file, they write down what is heard or seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.importers.drafting import write_draft
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.packages import write_graph

FRAME, RATE = 100, 8000
SYMBOLS = ("", " ", "a", "b", "c")
SOUND = "\npreprocess:\n  listen: [{decode: {}}, {mono: {}}, {resample: {rate: 8000}}]\n"
PICTURE = "\npreprocess:\n  look: [{decode: {mode: L}}, {rescale: {factor: 0.00392156862745098}}]\n"
Answer = Callable[..., None]


def scored(graph: GraphBuilder, loud: Any, *, softmax: bool) -> None:
    """Scores [b, frames, symbols] of numbers [b, frames, 1]: the best symbol is that of the nearest tenth."""
    away = graph.op("Sub", loud, np.arange(len(SYMBOLS), dtype=np.float32)[np.newaxis] / 10)
    scores = graph.op("Mul", graph.op("Neg", graph.op("Mul", away, away)), 1000.0)
    scores = graph.op("Softmax", scores, axis=-1) if softmax else scores
    graph.output("logits", scores, "float32", ["batch", "frames", len(SYMBOLS)])


def recogniser(folder: Path, *, softmax: bool = False, mask: bool = False, lengths: bool = False) -> Path:
    """Every frame of 100 samples has the symbol of its loudness: 0 to 4 tenths."""
    graph = GraphBuilder("recogniser")
    samples = graph.input("input_values", "float32", ["batch", "time"])
    if mask:
        samples = graph.op(
            "Mul", samples, graph.cast(graph.input("attention_mask", "int64", ["batch", "time"]), "float32")
        )
    if lengths:
        graph.input("lengths", "int64", ["batch"])
    frames = graph.op("Reshape", samples, [0, -1, FRAME])
    scored(graph, graph.op("ReduceMean", graph.op("Abs", frames), [-1], keepdims=1), softmax=softmax)
    write_graph(folder / "model.onnx", graph)
    (folder / "labels.json").write_text(json.dumps(SYMBOLS))
    return folder


def speech(symbols: str) -> tuple[Any, int]:
    """A sound with a frame for each symbol, as its number."""
    return np.repeat(np.array([int(symbol) / 10 for symbol in symbols], np.float32), FRAME), RATE


def written(symbols: str) -> str:
    """Equal neighbours once, blanks left out."""
    path = [symbol for index, symbol in enumerate(symbols) if index == 0 or symbols[index - 1] != symbol]
    return "".join(SYMBOLS[int(symbol)] for symbol in path)


ANSWERS = {"inputs.sound.program": "listen", "data.labels.file": "labels.json", "stages[0].with.blank": "0"}


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_a_recogniser_of_sounds(tmp_path: Path, answer: Answer, softmax: bool, mask: bool) -> None:
    draft = write_draft(recogniser(tmp_path, softmax=softmax, mask=mask), name="found")
    assert f"kind: {'probabilities' if softmax else 'logits'}" in draft.file.read_text()
    stage = 2 if mask else 1
    given = {key.replace("[0]", f"[{stage}]"): value for key, value in ANSWERS.items()}
    answer(draft, {**given, "x-todo[0]": ""}, SOUND)
    assert gp.validate(tmp_path)[1] == ()
    with gp.load(tmp_path) as pipe:
        for symbols in ("2233", "220221334", "1024214", "0000"):
            assert pipe.run({"sound": speech(symbols)})["text"] == written(symbols)


def test_a_recogniser_of_lines(tmp_path: Path, answer: Answer) -> None:
    graph = GraphBuilder("lines")
    pixels = graph.input("x", "float32", ["batch", 1, 2, "width"])
    columns = graph.op("ReduceMean", pixels, [1, 2], keepdims=0)
    scored(graph, graph.op("Unsqueeze", columns, [-1]), softmax=False)
    write_graph(tmp_path / "model.onnx", graph)
    (tmp_path / "labels.json").write_text(json.dumps(SYMBOLS))
    draft = write_draft(tmp_path, name="found")
    given = {key.replace("[0]", "[1]").replace("sound", "picture"): value for key, value in ANSWERS.items()}
    answer(draft, {**given, "inputs.picture.program": "look", "x-todo[0]": ""}, PICTURE)
    row = np.array([round(int(symbol) * 25.5) for symbol in "2203311"], np.uint8)
    picture = np.stack([np.stack([row] * 3, axis=-1)] * 2)
    with gp.load(tmp_path) as pipe:
        assert pipe.run({"picture": picture})["text"] == written("2203311")


def test_lengths_are_asked_with_what_they_could_be(tmp_path: Path) -> None:
    draft = write_draft(recogniser(tmp_path, lengths=True), name="found")
    asked = {question.at.path: question.message for question in draft.questions}
    assert "sound.samples.length | sound.valid_frames" in asked["stages[0].inputs.lengths"]
    assert "0 | 4" in asked["stages[1].with.blank"]
    _, problems = gp.validate(tmp_path)
    assert {problem.code for problem in problems} == {"draft.todo"}


def test_scores_of_the_whole_are_no_frames(tmp_path: Path) -> None:
    graph = GraphBuilder("kinds")
    pixels = graph.input("pixels", "float32", ["batch", 3, 4, 4])
    graph.output("logits", graph.op("ReduceMean", pixels, [2, 3], keepdims=0), "float32", ["batch", 3])
    write_graph(tmp_path / "model.onnx", graph)
    draft = write_draft(tmp_path, name="found")
    (question,) = draft.questions
    assert "label what is read" in question.message
    assert "ctc_decode" not in draft.file.read_text()

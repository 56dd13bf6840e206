"""Closed-form packages for speech: one whose sound spells its text, one that writes down what it hears.

``write_speaker``: every token of the text becomes ``SAMPLES`` equal samples, of the token's id / 1024 times the
parameter ``speed``; they come in pieces of two tokens. ``write_transcriber``: text from a sound alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.media import MediaPackage, write_listener
from genai_pipeline.testing.packages import METADATA_FILE, metadata_text, write_graph
from genai_pipeline.testing.vocabulary import Vocabulary, words

SAMPLES: Final = 8  # of a token
RATE: Final = 8000  # samples per second
Edit = Callable[[dict[str, Any]], object]


def write_speaker(folder: str | os.PathLike[str], *, edit: Edit | None = None) -> Path:
    """A package that speaks."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    speech_vocabulary().write(path / "tokenizer.json")
    for name, graph in (("levels", _levels_graph()), ("voice", _voice_graph())):
        write_graph(path / f"{name}.onnx", graph)
    sound = {
        "id": "sound",
        "loop": "iterate",
        "over": {"value": "levels", "axis": 1, "chunk": 2, "before": 0, "after": 0},
        "body": [
            {
                "run": "voice",
                "inputs": {"levels": "loop.item", "speed": ["parameters.speed"]},
                "outputs": {"wave": "piece"},
            }
        ],
        "collect": {"wave": {"value": "piece", "axis": 1, "scale": SAMPLES}},
    }
    metadata: dict[str, Any] = {
        "schema_version": "1",
        "name": "tiny-speaker",
        "inputs": {"prompt": {"modality": "text"}, "parameters": {"speed": {"type": "number", "default": 1.0}}},
        "outputs": {"audio": {"modality": "audio", "value": "sound.wave", "rate": RATE}},
        "tokenizer": {"file": "tokenizer.json"},
        "components": {"levels": {"model": "levels.onnx"}, "voice": {"model": "voice.onnx"}},
        "stages": [{"run": "levels", "inputs": {"input_ids": "prompt.tokens"}, "outputs": {"levels": "levels"}}, sound],
    }
    if edit is not None:
        edit(metadata)
    (path / METADATA_FILE).write_text(metadata_text(metadata), encoding="utf-8")
    return path


def write_transcriber(folder: str | os.PathLike[str], *, edit: Edit | None = None) -> MediaPackage:
    """The package of ``write_listener`` that needs no text: what it hears is all that it writes."""

    def with_default(metadata: dict[str, Any]) -> None:
        metadata["name"] = "tiny-transcriber"
        metadata["inputs"]["prompt"]["default"] = "?"
        metadata["inputs"]["audio"]["required"] = True
        if edit is not None:
            edit(metadata)

    return write_listener(folder, edit=with_default)


def speech_vocabulary() -> Vocabulary:
    """The vocabulary of ``write_speaker``."""
    return words()


def spoken(tokens: Sequence[int], speed: float = 1.0) -> list[float]:
    """The samples that ``write_speaker`` makes of tokens."""
    return [token / 1024 * speed for token in tokens for _ in range(SAMPLES)]


def _levels_graph() -> GraphBuilder:
    """``input_ids`` [batch, sequence] -> ``levels`` float32 [batch, sequence] = ids / 1024."""
    b = GraphBuilder("levels")
    ids = b.cast(b.input("input_ids", "int64", ["batch", "sequence"]), "float32")
    b.output("levels", b.op("Mul", ids, 1 / 1024), "float32", ["batch", "sequence"])
    return b


def _voice_graph() -> GraphBuilder:
    """``levels`` [batch, sequence], ``speed`` [1] -> ``wave`` [batch, SAMPLES * sequence]."""
    b = GraphBuilder("voice")
    levels = b.op("Mul", b.input("levels", "float32", ["batch", "sequence"]), b.input("speed", "float32", [1]))
    repeated = b.op("Expand", b.op("Unsqueeze", levels, [-1]), [1, 1, SAMPLES])
    flat = b.op("Reshape", repeated, [0, -1])
    b.output("wave", flat, "float32", ["batch", "samples"])
    return b

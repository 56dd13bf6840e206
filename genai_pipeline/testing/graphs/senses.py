"""Closed-form encoders: of pictures by colours of their quarters, of sounds by level and pitch, of texts by words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.testing.builder import GraphBuilder, Value
from genai_pipeline.testing.graphs.decoder import EMBED_DIGITS, EMBED_SIZE

SIDE: Final = 4  # pixels
QUARTERS: Final = 4
RATE: Final = 8000  # samples per second
PITCHES: Final = (200, 400, 600, 800, 1000, 1200, 1400, 1600)  # Hz: whole periods in a tenth of a second
LEVELS: Final = (0.05, 0.25)  # RMS from which a sound is "soft", and "loud"; below the first it is "quiet"
LISTEN: Final = 800  # samples that are heard


def vision_graph() -> GraphBuilder:
    """``pixel_values`` [batch, 3, 4, 4] in [0, 1] -> ``image_features`` [batch, 4, 3]: the mean colour of each quarter.

    Quarters in reading order.
    """
    b = GraphBuilder("vision")
    pixels = b.input("pixel_values", "float32", ["batch", 3, SIDE, SIDE])
    half = SIDE // 2
    means = b.op("AveragePool", pixels, kernel_shape=[half, half], strides=[half, half])
    colours = b.op("Transpose", b.op("Reshape", means, [0, 3, QUARTERS]), perm=[0, 2, 1])
    b.output("image_features", colours, "float32", ["batch", QUARTERS, 3])
    return b


def projector_graph(words: Sequence[int]) -> GraphBuilder:
    """``features`` [batch, slots, 3] -> ``rows`` [batch, slots, 4]: embeddings of the nearest colours' words.

    ``words``: token ids of the 8 colours, number red + 2 * green + 4 * blue.
    """
    b = GraphBuilder("projector")
    features = b.input("features", "float32", ["batch", "slots", 3])
    bits = b.cast(b.op("Greater", features, 0.5), "int64")
    code = b.op("ReduceSum", b.op("Mul", bits, np.array([1, 2, 4], np.int64)), [-1], keepdims=0)
    b.output("rows", b.op("Gather", embedding_rows(words), code), "float32", ["batch", "slots", EMBED_SIZE])
    return b


def ear_graph(levels: Sequence[int], pitches: Sequence[int]) -> GraphBuilder:
    """``samples`` [batch, 800] at 8 kHz -> ``rows`` [batch, 2, 4]: embeddings of a word for level and one for pitch."""
    b = GraphBuilder("ear")
    samples = b.input("samples", "float32", ["batch", LISTEN])
    power = b.op("ReduceMean", b.op("Mul", samples, samples), [-1], keepdims=0)
    level = b.op("Add", *(b.cast(b.op("GreaterOrEqual", power, float(bound) ** 2), "int64") for bound in LEVELS))
    pitch = b.op("ArgMax", pitch_power(b, samples), axis=-1, keepdims=0)
    rows = [
        b.op("Unsqueeze", b.op("Gather", embedding_rows(words), number), [1])
        for words, number in ((levels, level), (pitches, pitch))
    ]
    b.output("rows", b.op("Concat", *rows, axis=1), "float32", ["batch", 2, EMBED_SIZE])
    return b


def sound_tower_graph() -> GraphBuilder:
    """``samples`` [batch, 800] at 8 kHz -> ``vector`` [batch, 8]: the amplitude of each of PITCHES."""
    b = GraphBuilder("sound_tower")
    samples = b.input("samples", "float32", ["batch", LISTEN])
    b.output("vector", b.op("Sqrt", pitch_power(b, samples)), "float32", ["batch", len(PITCHES)])
    return b


def text_tower_graph(vocabulary: int, pitches: Sequence[int]) -> GraphBuilder:
    """``input_ids``, ``attention_mask`` [batch, sequence] -> ``vector`` [batch, 8]: counts of the words of pitches."""
    b = GraphBuilder("text_tower")
    ids, mask = (b.input(name, "int64", ["batch", "sequence"]) for name in ("input_ids", "attention_mask"))
    table = np.zeros((vocabulary, len(PITCHES)), np.float32)
    table[list(pitches), np.arange(len(PITCHES))] = 1
    seen = b.op("Mul", b.op("Gather", table, ids), b.cast(b.op("Unsqueeze", mask, [-1]), "float32"))
    b.output("vector", b.op("ReduceSum", seen, [1], keepdims=0), "float32", ["batch", len(PITCHES)])
    return b


def pitch_power(b: GraphBuilder, samples: Value) -> Value:
    """The squared amplitude of each of PITCHES in samples [batch, 800]: float32 [batch, 8]."""
    parts = [b.op("MatMul", samples, wave(kind) * np.float32(2 / LISTEN)) for kind in (np.cos, np.sin)]
    return b.op("Add", *(b.op("Mul", part, part) for part in parts))


def wave(kind: np.ufunc) -> NDArray[np.float32]:
    """Sines or cosines of PITCHES [800, 8]."""
    angles = 2 * np.pi * np.outer(np.arange(LISTEN), PITCHES) / RATE
    return np.asarray(kind(angles), np.float32)


def embedding_rows(words: Sequence[int]) -> NDArray[np.float32]:
    """Embeddings of tokens as the closed-form decoders read them."""
    ids = np.array(words)
    return np.stack([ids % EMBED_DIGITS, ids // EMBED_DIGITS, 1 + 0 * ids, 0 * ids], axis=1).astype(np.float32)

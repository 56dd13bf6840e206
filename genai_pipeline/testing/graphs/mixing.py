"""Closed-form graphs of models that see as onnxruntime-genai cuts them: an eye, a mixer of tokens and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.decoder import EMBED_SIZE, token_port
from genai_pipeline.testing.graphs.senses import embedding_rows

EYE_SIDE: Final = 16  # pixels: a picture has 256 rows
_STACKED = 3  # axes of rows of several pictures side by side


def eye_graph(words: Sequence[int], *, axes: int = _STACKED) -> GraphBuilder:
    """``pixel_values`` [images, 3, 16, 16] around 0 -> ``image_features``: embeddings of each pixel's colour's word.

    ``words``: token ids of the 8 colours, number red + 2 * green + 4 * blue. The rows are [images, 256, 4], or with
    ``axes`` 2 [rows, 4].
    """
    b = GraphBuilder("eye")
    pixels = b.input("pixel_values", "float32", ["images", 3, EYE_SIDE, EYE_SIDE])
    places = b.op("Transpose", b.op("Reshape", pixels, [0, 3, EYE_SIDE * EYE_SIDE]), perm=[0, 2, 1])
    bits = b.cast(b.op("Greater", places, 0.0), "int64")
    code = b.op("ReduceSum", b.op("Mul", bits, np.array([1, 2, 4], np.int64)), [-1], keepdims=0)
    rows = b.op("Gather", embedding_rows(words), code)
    if axes != _STACKED:
        rows = b.op("Reshape", rows, [-1, EMBED_SIZE])
    shape: list[int | str | None] = (
        ["images", EYE_SIDE * EYE_SIDE, EMBED_SIZE] if axes == _STACKED else ["rows", EMBED_SIZE]
    )
    b.output("image_features", rows, "float32", shape)
    return b


def mixer_graph(vocabulary: int, slots: dict[str, int], *, axes: int = _STACKED) -> GraphBuilder:
    """``input_ids`` and rows -> ``inputs_embeds`` [batch, sequence, 4]: rows in the places of their token, in order.

    ``slots``: port of rows -> its token, such as ``image_features``. There must be as many rows as places.
    """
    b = GraphBuilder("mixer")
    tokens = token_port(b)
    embeds = b.op("Gather", embedding_rows(range(vocabulary)), tokens)
    for port, slot in slots.items():
        lead = [f"{port}_items"] if axes == _STACKED else []
        rows = b.input(port, "float32", [*lead, f"{port}_rows", EMBED_SIZE])
        places = b.op("Transpose", b.op("NonZero", b.op("Equal", tokens, slot)), perm=[1, 0])
        embeds = b.op("ScatterND", embeds, places, b.op("Reshape", rows, [-1, EMBED_SIZE]))
    b.output("inputs_embeds", embeds, "float32", ["batch", "sequence", EMBED_SIZE])
    return b

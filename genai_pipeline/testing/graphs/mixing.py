"""Closed-form graphs of models that see as onnxruntime-genai cuts them: an eye, a mixer of tokens and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from genai_pipeline.testing.builder import GraphBuilder, Value
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


def wide_eye_graph(words: Sequence[int], block: int) -> GraphBuilder:
    """``pixel_values`` [images, 3, height, width] -> ``image_features`` [rows, 4]: a colour per block, line by line.

    As ``eye_graph``, for pictures of any size whose sides are multiples of ``block`` pixels.
    """
    b = GraphBuilder("wide_eye")
    pixels = b.input("pixel_values", "float32", ["images", 3, "height", "width"])
    means = b.op("AveragePool", pixels, kernel_shape=[block, block], strides=[block, block])
    places = b.op("Transpose", b.op("Reshape", means, [0, 3, -1]), perm=[0, 2, 1])
    _colours(b, places, words)
    return b


def patch_eye_graph(words: Sequence[int], merge: int, values: int) -> GraphBuilder:
    """``pixel_values`` [patches, values], ``image_grid_thw`` [1, 3] -> ``image_features``: the first of merged patches.

    A row for each ``merge`` * ``merge`` patches, the colour of the first pixel of the first of them.
    """
    b = GraphBuilder("patch_eye")
    patches = b.input("pixel_values", "float32", ["patches", values])
    grid = b.input("image_grid_thw", "int64", [1, 3])
    blocks = b.op("Reshape", patches, [-1, merge * merge, 3, values // 3])
    first = b.op("Squeeze", b.op("Slice", blocks, [0, 0], [1, 1], [1, 3]), [1, 3])  # [rows, 3]
    none = b.cast(b.op("Mul", b.op("ReduceSum", grid, keepdims=0), 0), "float32")
    _colours(b, b.op("Add", first, none), words)
    return b


def filled_eye_graph(words: Sequence[int], merge: int, values: int) -> GraphBuilder:
    """Patches filled up to one length, their mask and lines -> ``image_features`` [rows, 4].

    ``pixel_values`` [images, patches, values] with channels last, ``pixel_attention_mask`` [images, patches],
    ``spatial_shapes`` [images, 2]: lines and columns. A row for each ``merge`` * ``merge`` patches of one picture,
    the colour of the first pixel of the first of them; the mask must say which patches count.
    """
    b = GraphBuilder("filled_eye")
    patches = b.input("pixel_values", "float32", ["images", "patches", values])
    mask = b.input("pixel_attention_mask", "int64", ["images", "patches"])
    shape = b.input("spatial_shapes", "int64", ["images", 2])
    used = b.op("ReduceSum", b.op("Squeeze", mask, [0]), keepdims=1)
    first = b.op("Slice", b.op("Squeeze", patches, [0]), [0, 0], b.op("Concat", used, [3], axis=0), [0, 1])
    grid = b.op("Reshape", first, b.op("Concat", b.op("Squeeze", shape, [0]), [3], axis=0))
    begins = b.op("Slice", grid, [0, 0], [1 << 30, 1 << 30], [0, 1], [merge, merge])
    _colours(b, b.op("Reshape", begins, [-1, 3]), words)
    return b


def _colours(b: GraphBuilder, places: Value, words: Sequence[int]) -> None:
    """The output of rows [rows, 4] for colours [..., 3] around 0."""
    bits = b.cast(b.op("Greater", places, 0.0), "int64")
    code = b.op("ReduceSum", b.op("Mul", bits, np.array([1, 2, 4], np.int64)), [-1], keepdims=0)
    rows = b.op("Reshape", b.op("Gather", embedding_rows(words), code), [-1, EMBED_SIZE])
    b.output("image_features", rows, "float32", ["rows", EMBED_SIZE])


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

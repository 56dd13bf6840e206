"""What a decode loop publishes to its body, ``loop.tokens`` and the rest, as arrays for one batch.

For b rows with p tokens of past and n new ones: S = max n, P = the past width the storage pads to, T = P + S
where padding is on the left, max(p + n) where it is on the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.buffers import GrowingArray

Array = NDArray[Any]
PadSide = Literal["left", "right"]


class Frame:
    """Sizes of one batch as arrays, from which every published value follows."""

    __slots__ = ("batch", "counts", "pad_side", "past_width", "starts", "stops", "total_width", "width")

    def __init__(self, batch: Batch, pad_side: PadSide, past_width: int) -> None:
        self.batch = batch
        self.pad_side = pad_side
        self.starts = np.array(batch.starts, np.int64)
        self.stops = np.array(batch.stops, np.int64)
        self.counts = self.stops - self.starts
        self.width = batch.width
        self.past_width = past_width
        self.total_width = past_width + batch.width if pad_side == "left" else max(batch.stops)


def _tokens(frame: Frame) -> Array:
    batch = frame.batch
    if batch.width == 1:
        return np.array([[s.tokens[i]] for s, i in zip(batch.sequences, batch.starts, strict=True)], np.int64)
    out = np.zeros((batch.size, batch.width), np.int64)
    for i, sequence in enumerate(batch.sequences):
        out[i, : frame.counts[i]] = sequence.tokens[batch.starts[i] : batch.stops[i]]
    return out


def _attention_mask(frame: Frame) -> Array:
    columns = np.arange(frame.total_width)
    if frame.pad_side == "right":
        return columns < frame.stops[:, None]
    first = (frame.past_width - frame.starts)[:, None]
    last = (frame.past_width + frame.counts)[:, None]
    return (columns >= first) & (columns < last)


def _position_ids(frame: Frame) -> Array:
    return frame.starts[:, None] + np.arange(frame.width)


def _cache_position(frame: Frame) -> Array:
    return frame.starts[:, None] + np.arange(frame.width)


def _step(frame: Frame) -> Array:
    return np.array(frame.batch.sequences[0].num_decoded(frame.batch.starts[0]), np.int64)


def _first(frame: Frame) -> Array:
    return np.array(frame.batch.starts[0] == 0)


VALUES: Mapping[str, Callable[[Frame], Array]] = {
    "tokens": _tokens,
    "attention_mask": _attention_mask,
    "position_ids": _position_ids,
    "past_length": lambda frame: frame.starts,
    "total_length": lambda frame: frame.stops,
    "sequence_lengths": lambda frame: frame.counts,
    "last_index": lambda frame: frame.stops - 1,
    "max_length": lambda frame: np.array(frame.total_width, np.int64),
    "cache_position": _cache_position,
    "write_indices": lambda frame: frame.starts,
    "step": _step,
    "first": _first,
}


class LoopValues:
    """Keeps one buffer per (value, dtype) that the body reads, filled anew for each batch."""

    def __init__(self, wanted: Iterable[tuple[str, np.dtype[Any]]]) -> None:
        self._arrays = {key: GrowingArray(key[1]) for key in sorted(set(wanted), key=str)}
        self._frame: Frame | None = None

    def update(self, frame: Frame) -> None:
        """Compute every wanted value for the next run."""
        self._frame = frame
        for (name, _), kept in self._arrays.items():
            value = VALUES[name](frame)
            kept.resize(value.shape)[...] = value

    def array(self, name: str) -> Array:
        """A value in its natural dtype, for expressions."""
        assert self._frame is not None
        return VALUES[name](self._frame)

    def buffer(self, name: str, dtype: np.dtype[Any], rank: int | None) -> Buffer:
        """A value as the port takes it; a single number takes the rank of the port."""
        kept = self._arrays[name, dtype]
        if rank is None or kept.array.ndim == rank:
            return kept.buffer
        assert kept.array.size == 1, f"loop.{name} has {kept.array.size} values where its port takes one"
        return kept.buffer.shaped((1,) * rank)

"""What a decode loop publishes to its body, ``loop.tokens`` and the rest, as arrays for one batch.

For b rows with p tokens of past and n new ones: S = max n, P = the past width the storage pads to, T = P + S
where padding is on the left, max(p + n) where it is on the right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.backends.protocol import Buffer
from genai_pipeline.engine.batch import Batch
from genai_pipeline.engine.buffers import GrowingArray

Array = NDArray[Any]
PadSide = Literal["left", "right"]


class Frame:
    """Sizes of one batch, from which every published value follows; arrays are made when a value needs them."""

    def __init__(self, batch: Batch, pad_side: PadSide, past_width: int) -> None:
        self.batch = batch
        self.pad_side = pad_side
        self.size = len(batch.sequences)
        self.width = batch.width
        self.past_width = past_width
        self.total_width = past_width + batch.width if pad_side == "left" else max(batch.stops)

    @cached_property
    def starts(self) -> Array:
        """Past per row, int64 [b, 1]."""
        return np.array(self.batch.starts, np.int64)[:, None]

    @cached_property
    def stops(self) -> Array:
        """Past and new tokens per row, int64 [b, 1]."""
        return np.array(self.batch.stops, np.int64)[:, None]


Fill = Callable[[Frame, GrowingArray], None]  # gives the array its shape and content for a frame


def _tokens(frame: Frame, out: GrowingArray) -> None:
    batch = frame.batch
    array = out.resize((frame.size, frame.width))
    for row, sequence, start, stop in zip(array, batch.sequences, batch.starts, batch.stops, strict=True):
        if frame.width == 1:
            row[0] = sequence.tokens[start]
        else:
            row[: stop - start] = sequence.known(start, stop)
            row[stop - start :] = 0


def _attention_mask(frame: Frame, out: GrowingArray) -> None:
    mask = out.resize((frame.size, frame.total_width))
    if frame.size == 1 and frame.batch.stops[0] == frame.total_width:
        mask.fill(1)
        return
    columns = np.arange(frame.total_width)
    if frame.pad_side == "right":
        np.less(columns, frame.stops, out=mask, casting="unsafe")
    else:
        shifted = columns - frame.past_width  # 0 at the first new token
        mask[...] = (shifted >= -frame.starts) & (shifted < frame.stops - frame.starts)


def _positions(frame: Frame, out: GrowingArray) -> None:
    positions = out.resize((frame.size, frame.width))
    if frame.width == 1:
        for i, start in enumerate(frame.batch.starts):
            positions[i, 0] = start
    else:
        positions[...] = frame.starts + np.arange(frame.width)


def _padded_lengths(frame: Frame, out: GrowingArray) -> None:
    """p + S: where causal attention counts back from the length, padding then stays behind every real token."""
    out.resize((frame.size,))[...] = [start + frame.width for start in frame.batch.starts]


def _vector(of: Callable[[Batch], Sequence[int]]) -> Fill:
    def fill(frame: Frame, out: GrowingArray) -> None:
        out.resize((frame.size,))[...] = of(frame.batch)

    return fill


def _scalar(of: Callable[[Frame], int]) -> Fill:
    def fill(frame: Frame, out: GrowingArray) -> None:
        out.resize(())[...] = of(frame)

    return fill


VALUES: Mapping[str, Fill] = {
    "tokens": _tokens,
    "attention_mask": _attention_mask,
    "position_ids": _positions,
    "cache_position": _positions,
    "past_length": _vector(lambda batch: batch.starts),
    "write_indices": _vector(lambda batch: batch.starts),
    "total_length": _vector(lambda batch: batch.stops),
    "padded_length": _padded_lengths,
    "sequence_lengths": _vector(lambda batch: batch.counts),
    "last_index": _vector(lambda batch: [stop - 1 for stop in batch.stops]),
    "max_length": _scalar(lambda frame: frame.total_width),
    "step": _scalar(lambda frame: frame.batch.sequences[0].num_decoded(frame.batch.starts[0])),
    "first": _scalar(lambda frame: frame.batch.starts[0] == 0),
}


# ``step`` and ``first`` are one value for all rows of a run: rows that differ in it are parted (``DecodeLoop``).
_CONDITIONS = frozenset({"first"})


class LoopValues:
    """Keeps one buffer per (value, dtype) that the body reads, filled anew for each batch."""

    def __init__(self, wanted: Iterable[tuple[str, np.dtype[Any]]]) -> None:
        self._kept = {key: GrowingArray(key[1]) for key in sorted(set(wanted), key=str)}
        self._fills = [(VALUES[name], kept) for (name, _), kept in self._kept.items()]
        self._frame: Frame | None = None

    def update(self, frame: Frame) -> None:
        """Compute every wanted value for the next run."""
        self._frame = frame
        for fill, kept in self._fills:
            fill(frame, kept)

    def array(self, name: str) -> Array:
        """A value in int64, or as true or false, for expressions."""
        assert self._frame is not None
        made = GrowingArray(np.dtype(np.bool_ if name in _CONDITIONS else np.int64))
        VALUES[name](self._frame, made)
        return made.array

    def buffer(self, name: str, dtype: np.dtype[Any], rank: int | None) -> Buffer:
        """A value as the port takes it; a single number takes the rank of the port."""
        kept = self._kept[name, dtype]
        if rank is None or kept.array.ndim == rank:
            return kept.buffer
        assert kept.array.size == 1, f"loop.{name} has {kept.array.size} values where its port takes one"
        return kept.buffer.shaped((1,) * rank)

"""Sizes of state: bytes per token, 16-token pages, and how one tensor is laid out in memory."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.types import numpy_dtype

ARENA_UPDATES = frozenset({"in_place", "scatter"})  # updates whose state lies in arenas, rows at fixed addresses
SNAPSHOTS = 4  # states that a row of the update "replace" keeps besides its own; the oldest go first
PAGE_TOKENS = 16  # tokens per page, the unit of account; not the operating system's page


def pages_for(tokens: int) -> int:
    """Pages that hold ``tokens`` tokens."""
    return -(-tokens // PAGE_TOKENS)


def bytes_per_token(states: Iterable[StatePlan]) -> int:
    """Bytes that one token takes in the rows of all growing states: once in an arena, twice with ``append``.

    There, past and present are two buffers; each is reckoned as long as the row.
    """
    return sum(
        (2 if state.update == "append" else 1) * TensorLayout.of(tensor).token_bytes
        for state in states
        if state.grows
        for tensor in state.tensors
    )


def bytes_per_row(states: Iterable[StatePlan]) -> int:
    """Bytes that one sequence takes in states without tokens: what it had, what the next run gives, and snapshots.

    What is written once (``fixed``) lies in a block, and in a larger one while rows come together. It counts where a
    graph fixes its length; else only its first run tells how much it is.
    """
    total = 0
    for state in states:
        for tensor in state.tensors:
            if state.update == "replace":
                total += (2 + SNAPSHOTS + (tensor.given is not None)) * tensor.bytes_per_token
            elif state.update == "fixed":
                total += 2 * (tensor.length or 0) * tensor.bytes_per_token
    return total


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A state tensor with tokens as C-contiguous [batch, *outer, length, *inner].

    A row (one sequence) is ``stripes`` stripes, e.g. one per head; a stripe holds its tokens one after another.
    """

    tensor: StateTensor
    dtype: np.dtype[Any]
    outer: tuple[int, ...]
    inner: tuple[int, ...]

    @staticmethod
    def of(tensor: StateTensor) -> TensorLayout:
        """The layout of a tensor whose axes "batch" (first) and "length" are named."""
        length = tensor.shape.index("length")
        assert tensor.shape[0] == "batch", tensor
        sizes = [dim for dim in tensor.shape if isinstance(dim, int)]
        assert len(sizes) == len(tensor.shape) - 2, tensor
        return TensorLayout(tensor, numpy_dtype(tensor.dtype), tuple(sizes[: length - 1]), tuple(sizes[length - 1 :]))

    @property
    def stripes(self) -> int:
        """Stripes per row."""
        return math.prod(self.outer)

    @property
    def stripe_token_bytes(self) -> int:
        """Bytes of one token in one stripe."""
        return math.prod(self.inner) * self.dtype.itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in all stripes."""
        return self.stripes * self.stripe_token_bytes

    def shape(self, batch: int, length: int) -> tuple[int, ...]:
        """The port's shape for ``batch`` rows of ``length`` tokens."""
        return (batch, *self.outer, length, *self.inner)


def aligned_capacity(layouts: Iterable[TensorLayout], capacity: int) -> int:
    """``capacity`` rounded up so that every stripe of every tensor fills whole pages of memory.

    Otherwise the end of one stripe and the start of the next share a page, and rows cannot be moved by remapping.
    """
    step = 1
    for layout in layouts:
        step = math.lcm(step, mmap.PAGESIZE // math.gcd(mmap.PAGESIZE, layout.stripe_token_bytes))
    return -(-capacity // step) * step

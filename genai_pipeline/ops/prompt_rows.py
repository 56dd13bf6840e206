"""Operations on masks, positions and the embedding rows of a prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]
Array = npt.NDArray[Any]


def splice(inputs: Values, params: Values, context: OpContext) -> Values:
    """``into`` with its rows at the positions ``at`` replaced by ``features``; only [start, stop) is looked at.

    Runs at every step of a decode loop: where no position lies in the range, ``into`` itself comes back.
    """
    into, places = inputs["into"], inputs["at"] or ()
    start, stop = _token_range(into.shape[1], context)
    if not any(len(item) and item[0] < stop and item[-1] >= start for item in places):
        if context.start == 0:  # once for each prompt
            _check_counts(inputs["features"] or (), places, context)
        return {RESULT: into}
    features = inputs["features"] or ()
    _check_counts(features, places, context)
    result = into if "into" in context.owned and into.flags.writeable else into.copy()
    for item, positions in zip(features, places, strict=True):
        rows = item.reshape(-1, item.shape[-1])
        if rows.shape[1] != into.shape[2]:
            message = f"stage '{context.stage}' puts rows of {rows.shape[1]} numbers among rows of {into.shape[2]}"
            raise RequestError(message)
        first, last = np.searchsorted(positions, (start, stop))
        result[0, positions[first:last] - start] = rows[first:last]
    return {RESULT: result}


def position_mask(inputs: Values, params: Values, context: OpContext) -> Values:
    """1 for the new tokens that stand at ``at``."""
    start, stop = _token_range(params["length"] or 0, context)
    found = np.zeros((1, stop - start), params["dtype"])
    for positions in inputs["at"] or ():
        first, last = np.searchsorted(positions, (start, stop))
        found[0, positions[first:last] - start] = 1
    return {RESULT: found}


def mask(inputs: Values, params: Values, context: OpContext) -> Values:
    """1 for the first ``length`` positions of each row."""
    lengths = inputs["length"]
    size = int(lengths.max(initial=0)) if params["size"] is None else params["size"]
    if (lengths > size).any() or (lengths < 0).any():
        raise RequestError(f"stage '{context.stage}' marks {int(lengths.max())} of {size} positions")
    return {RESULT: (np.arange(size) < lengths[:, np.newaxis]).astype(params["dtype"])}


def attention_mask(inputs: Values, params: Values, context: OpContext) -> Values:
    """0 where key position j may be seen from query position i, else ``low``."""
    used = inputs["mask"].astype(bool)
    total = used.shape[1]
    queries = total if params["queries"] is None else params["queries"]
    if queries > total:
        raise RequestError(f"stage '{context.stage}' has {queries} of {total} positions look at the others")
    looking, seen = np.arange(total - queries, total)[:, np.newaxis], np.arange(total)
    allowed = np.ones((queries, total), bool)
    if params["causal"]:
        allowed &= seen <= looking
    if params["window"] is not None:
        allowed &= seen > looking - params["window"]
    both = allowed[np.newaxis, np.newaxis] & used[:, np.newaxis, np.newaxis]
    return {RESULT: np.where(both, np.float32(0), np.float32(params["low"]))}


def grid_positions(inputs: Values, params: Values, context: OpContext) -> Values:
    """Positions by time, row and column, as M-RoPE has them (Qwen2-VL, arXiv:2409.12191, section 2.1)."""
    length, merge = int(inputs["length"]), params["merge"]
    items = list(zip(inputs["at"] or (), inputs["grids"] or (), strict=False))
    if len(inputs["at"] or ()) != len(inputs["grids"] or ()):
        raise RequestError(f"stage '{context.stage}' has grids and positions of different numbers of items")
    found = np.zeros((3, length), np.int64)
    token = position = 0
    for start, grid in _runs(items, merge, context):
        found[:, token:start] = position + np.arange(start - token)
        position += start - token
        count = math.prod(grid)
        found[:, start : start + count] = position + np.indices(grid).reshape(3, -1)
        token, position = start + count, position + max(grid)
    found[:, token:] = position + np.arange(length - token)
    return {"positions": found, "offset": np.int64(position - token)}


def _runs(items: Sequence[tuple[Array, Array]], merge: int, context: OpContext) -> Iterator[tuple[int, list[int]]]:
    """Where the features of each item begin and how they lie: frames, rows, columns."""
    for positions, sizes in items:
        time, rows, columns = (1, *sizes.reshape(-1))[-3:] if sizes.size == 2 else sizes.reshape(-1)
        grid = [int(time), int(rows) // merge, int(columns) // merge]
        start = int(positions[0]) if len(positions) else 0
        if len(positions) != math.prod(grid) or (np.diff(positions) != 1).any():
            message = f"stage '{context.stage}': a grid of {grid} does not fill {len(positions)} slots in one run"
            raise RequestError(message)
        yield start, grid


def _token_range(length: int, context: OpContext) -> tuple[int, int]:
    """The new tokens: of the row in a decode body, else all there are."""
    return (context.start, context.stop) if context.stop else (0, length)


def _check_counts(features: Sequence[Array], places: Sequence[Array], context: OpContext) -> None:
    """As many rows as positions, item by item."""
    rows, slots = [math.prod(item.shape[:-1]) for item in features], [len(item) for item in places]
    if rows != slots:
        text = f"stage '{context.stage}' has {rows} feature rows for {slots} positions of the prompt"
        raise RequestError(text, hint="the encoder gives as many rows as the placeholder has slots")

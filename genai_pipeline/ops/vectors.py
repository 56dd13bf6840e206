"""Operations on vectors: choices, scores and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.arrays import as_floats
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def argmax(inputs: Values, params: Values, context: OpContext) -> Values:
    """The index of the largest number along ``axis``."""
    return {RESULT: np.argmax(inputs["value"], params["axis"]).astype(np.int64)}


def pool(inputs: Values, params: Values, context: OpContext) -> Values:
    """One vector of each row of ``states``, over the positions that ``mask`` says count."""
    states = inputs["states"]
    mask = inputs.get("mask")
    counts = np.ones(states.shape[:2], bool) if mask is None else mask.astype(bool)
    if counts.shape != states.shape[:2]:
        message = f"stage '{context.stage}' pools {states.shape[1]} states with a mask of {counts.shape[1]}"
        raise RequestError(message)
    pooled = np.zeros((states.shape[0], states.shape[2]), states.dtype)
    for row in range(states.shape[0]):
        chosen = states[row][counts[row]]
        if len(chosen):
            pooled[row] = _pooled(chosen, params["kind"])
    return {RESULT: pooled}


def _pooled(chosen: Any, kind: str) -> Any:
    if kind == "cls":
        return chosen[0]
    if kind == "last":
        return chosen[-1]
    return chosen.max(0) if kind == "max" else chosen.mean(0)


def normalize(inputs: Values, params: Values, context: OpContext) -> Values:
    """Vectors divided by their norm of order p."""
    value, order, axis = as_floats(inputs["value"]), params["order"], params["axis"]
    norm = np.linalg.norm(value, axis=axis, keepdims=True) if order == 2 else _norm(value, order, axis)
    return {RESULT: value / np.maximum(norm, value.dtype.type(params["epsilon"]))}


def _norm(value: Any, order: float, axis: int) -> Any:
    return (np.abs(value) ** order).sum(axis, keepdims=True) ** value.dtype.type(1 / order)

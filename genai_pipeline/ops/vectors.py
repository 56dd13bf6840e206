"""Operations on vectors: choices, scores and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.arrays import as_floats, axis_of
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.labels import labelled, read_labels

Values = Mapping[str, Any]
Array = npt.NDArray[Any]


def argmax(inputs: Values, params: Values, context: OpContext) -> Values:
    """The index of the largest number along ``axis``."""
    value = inputs["value"]
    axis = axis_of(value.ndim, params["axis"], context)
    if value.shape[axis] == 0:
        raise RequestError(f"stage '{context.stage}' looks for the largest of no numbers")
    return {RESULT: np.argmax(value, axis).astype(np.int64)}


def top_k(inputs: Values, params: Values, context: OpContext) -> Values:
    """The k largest numbers of the last axis and their indices."""
    value, k = inputs["value"], params["k"]
    if value.ndim == 0 or k > value.shape[-1]:
        raise RequestError(f"stage '{context.stage}' takes the {k} largest of {value.shape[-1:] or 1} numbers")
    # the order of the reversed axis, read backwards, keeps equal numbers in their own order
    size = value.shape[-1]
    order = size - 1 - np.argsort(value[..., ::-1], -1, kind="stable")[..., ::-1][..., :k]
    return {"values": np.take_along_axis(value, order, -1), "indices": order.astype(np.int64)}


def softmax(inputs: Values, params: Values, context: OpContext) -> Values:
    """exp(x / temperature) over its sum."""
    value = as_floats(inputs["value"])
    found = softmaxed(value / value.dtype.type(params["temperature"]), axis_of(value.ndim, params["axis"], context))
    return {RESULT: found, "items": _items(found, inputs, context)}


def sigmoid(inputs: Values, params: Values, context: OpContext) -> Values:
    """1 / (1 + exp(-x)), by the half of tanh, which never overflows."""
    value = as_floats(inputs["value"])
    half = value.dtype.type(0.5)
    found = half * (np.tanh(half * value) + 1)
    return {RESULT: found, "items": _items(found, inputs, context)}


def pool(inputs: Values, params: Values, context: OpContext) -> Values:
    """One vector of each row of ``states``, over the positions that ``mask`` says count."""
    states, mask = inputs["states"], inputs["mask"]
    counts = np.ones(states.shape[:2], bool) if mask is None else mask.astype(bool)
    if counts.shape != states.shape[:2]:
        message = f"stage '{context.stage}' pools states {list(states.shape)} with a mask {list(counts.shape)}"
        raise RequestError(message)
    pooled = np.zeros((states.shape[0], states.shape[2]), states.dtype)
    for row in range(states.shape[0]):
        chosen = states[row][counts[row]]
        if len(chosen):
            pooled[row] = _pooled(chosen, params["kind"])
    return {RESULT: pooled}


def normalize(inputs: Values, params: Values, context: OpContext) -> Values:
    """Vectors divided by their norm of order p."""
    value = as_floats(inputs["value"])
    axis = axis_of(value.ndim, params["axis"], context)
    powers = np.abs(value) ** params["order"]
    norm = powers.sum(axis, keepdims=True, dtype=value.dtype) ** value.dtype.type(1 / params["order"])
    return {RESULT: value / np.maximum(norm, value.dtype.type(params["epsilon"]))}


def similarity(inputs: Values, params: Values, context: OpContext) -> Values:
    """A number for each pair of vectors of ``a`` and ``b``."""
    a, b = (inputs[name].astype(np.float32) for name in ("a", "b"))
    if a.shape[1] != b.shape[1]:
        raise RequestError(f"stage '{context.stage}' compares vectors of {a.shape[1]} and {b.shape[1]} numbers")
    if params["kind"] == "distance":
        found = np.sqrt(((a[:, np.newaxis] - b) ** 2).sum(-1))
    else:
        units = [x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.float32(1e-12)) for x in (a, b)]
        left, right = units if params["kind"] == "cosine" else (a, b)
        found = left @ right.T
    return {RESULT: found * np.float32(params["scale"])}


def truncate(inputs: Values, params: Values, context: OpContext) -> Values:
    """The first ``size`` numbers of the last axis."""
    value, size = inputs["value"], params["size"]
    if value.ndim == 0 or size > value.shape[-1]:
        raise RequestError(f"stage '{context.stage}' keeps {size} numbers of vectors that have fewer")
    return {RESULT: value[..., :size]}


def sample(inputs: Values, params: Values, context: OpContext) -> Values:
    """An index drawn from the last row of logits, after temperature, top-k and top-p."""
    logits = inputs["logits"].astype(np.float64)
    last = logits.reshape(-1, logits.shape[-1])[-1]
    if params["temperature"] == 0:
        return {RESULT: np.full((1, 1), np.argmax(last), np.int64)}
    order = np.argsort(-last, kind="stable")[: params["top_k"] or None]
    chances = softmaxed(last[order] / params["temperature"], 0)
    before = np.cumsum(chances) - chances  # the share of the likelier ones
    kept = np.cumsum(np.where((before < params["top_p"]) | (before == 0), chances, 0.0))
    drawn = np.searchsorted(kept, context.generator().random() * kept[-1], side="right")
    return {RESULT: np.full((1, 1), order[min(int(drawn), len(order) - 1)], np.int64)}


def softmaxed(value: Array, axis: int) -> Array:
    """exp(x) over its sum, shifted by the largest so that nothing overflows."""
    powers = np.exp(value - value.max(axis, keepdims=True))
    found: Array = powers / powers.sum(axis, keepdims=True)
    return found


def _pooled(chosen: Array, kind: str) -> Any:
    if kind == "cls":
        return chosen[0]
    if kind == "last":
        return chosen[-1]
    return chosen.max(0) if kind == "max" else chosen.mean(0)


def _items(scores: Array, inputs: Values, context: OpContext) -> list[dict[str, Any]] | None:
    labels = read_labels(inputs["labels"], scores.size, context)
    return None if labels is None else labelled(scores.reshape(-1), labels)

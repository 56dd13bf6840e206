"""Operations on the embedding rows of a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    places, into = inputs["at"], inputs["into"]
    if not places or not any(len(item) and item[0] < context.stop and item[-1] >= context.start for item in places):
        if bool(places) != bool(inputs["features"]):
            _check_counts(inputs["features"] or (), places or (), context)
        return {RESULT: into}
    features = [item.reshape(-1, item.shape[-1]) for item in inputs["features"] or ()]
    _check_counts(features, places, context)
    if any(item.shape[-1] != into.shape[-1] for item in features):
        raise RequestError(f"stage '{context.stage}' splices rows of {features[0].shape[-1]} into {into.shape[-1]}")
    result = into if "into" in context.owned and into.flags.writeable else into.copy()
    for rows, positions in zip(features, places, strict=True):
        first, last = np.searchsorted(positions, (context.start, context.stop))
        if first < last:
            result[0, positions[first:last] - context.start] = rows[first:last]
    return {RESULT: result}


def _check_counts(features: Sequence[Array], places: Sequence[Array], context: OpContext) -> None:
    """As many rows as positions, item by item."""
    rows, slots = [_rows(item) for item in features], [len(item) for item in places]
    if rows != slots:
        text = f"stage '{context.stage}' has {rows} feature rows for {slots} positions of the prompt"
        raise RequestError(text, hint="the encoder gives as many rows as the placeholder has slots")


def _rows(item: Array) -> int:
    return int(np.prod(item.shape[:-1]))

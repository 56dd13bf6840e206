"""Labels of a model's outputs, and scores told by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genai_pipeline.errors import RequestError
from genai_pipeline.ops.context import OpContext


def read_labels(value: Sequence[Any] | None, count: int | None, context: OpContext) -> list[str] | None:
    """Labels as a list, from a list of texts or a text with a label per line; None where there are none.

    Raises RequestError for other things, and when there are not ``count`` of them.
    """
    if value is None:
        return None
    found = value[0] if len(value) == 1 and not isinstance(value[0], bytes) else value
    if isinstance(found, str):
        found = found.removesuffix("\n").split("\n")
    if isinstance(found, dict):
        found = [found[key] for key in sorted(found, key=int)]
    labels = [str(label) for label in found]
    if count is not None and len(labels) != count:
        raise RequestError(f"stage '{context.stage}' has {len(labels)} labels for {count} scores")
    return labels


def labelled(scores: Any, labels: list[str]) -> list[dict[str, Any]]:
    """``{label, score}`` of each number, the best first, equal ones in order."""
    order = sorted(range(len(labels)), key=lambda index: -scores[index])
    return [{"label": labels[index], "score": float(scores[index])} for index in order]

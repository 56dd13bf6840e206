"""Bodies of ``/v1/embeddings`` and the object that answers: vectors of texts, as numbers or as base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.option_values import as_integer
from genai_pipeline.server.bodies import Fields
from genai_pipeline.server.task_runs import TaskOptions, read_options

MAX_INPUTS: Final = 2048

Encoding = Literal["float", "base64"]


@dataclass(frozen=True, slots=True)
class EmbeddingBody:
    """Texts, or lists of token ids, of which vectors are wanted."""

    texts: list[str]
    tokens: list[list[int]]
    dimensions: int | None
    base64: bool
    given: TaskOptions


def read_embedding(fields: Fields) -> EmbeddingBody:
    """The body by what it means. Raises ApiError 400."""
    given = fields.must("input", fields.any("input"))
    items: list[Any] = [given] if isinstance(given, str) or _is_tokens(given) else given
    if not isinstance(items, list) or not items:
        raise fields.wrong("input", "must be a text, a list of texts, token ids, or a list of lists of these")
    if len(items) > MAX_INPUTS:
        raise fields.wrong("input", f"has {len(items)} entries; at most {MAX_INPUTS}")
    texts = [item for item in items if isinstance(item, str)]
    tokens = [item for item in items if _is_tokens(item)]
    if len(items) not in (len(texts), len(tokens)):
        raise fields.wrong("input", "must have texts only, or lists of token ids only")
    if "" in texts:
        raise fields.wrong("input", "has an empty text")
    return EmbeddingBody(
        texts,
        tokens,
        fields.integer("dimensions", low=1),
        fields.choice("encoding_format", ("float", "base64")) == "base64",
        read_options(fields),
    )


def embedding_object(vectors: NDArray[Any], model: str, tokens: int, *, encoded: bool) -> dict[str, Any]:
    """The response with vectors [n, d]; ``encoded``: each as base64 of float32, little-endian."""
    rows: list[Any] = [_encoded(row) for row in vectors] if encoded else vectors.tolist()
    data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def _encoded(vector: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, "<f4").tobytes()).decode("ascii")


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(as_integer(item) is not None for item in value)

"""Operations on text: tokens, templates and joined texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.metadata.operation_spec import RESULT
from genai_pipeline.ops.context import OpContext

Values = Mapping[str, Any]


def tokenize(inputs: Values, params: Values, context: OpContext) -> Values:
    """Ids of a text or of two, with tokens around them."""
    tokenizer = context.tokenizer(params["tokenizer"])
    first, second = (
        None if inputs[name] is None else list(tokenizer.encode_text(inputs[name], params["special"]))
        for name in ("text", "pair")
    )
    begin, between, end = ([tokenizer.token_id(text) for text in params[key]] for key in ("begin", "between", "end"))
    if second is None:
        ids, ahead = [*begin, *(first or ()), *end], None
    else:
        ahead = len(begin) + len(first or ()) + len(between)
        ids = [*begin, *(first or ()), *between, *second, *end]
    tokens = np.array([ids], np.int64).reshape(1, -1)
    types = np.zeros_like(tokens)
    if ahead is not None:
        types[:, ahead:] = 1
    return {"tokens": tokens, "mask": np.ones_like(tokens), "types": types}


def detokenize(inputs: Values, params: Values, context: OpContext) -> Values:
    """The text of ids."""
    ids = [int(token) for token in inputs["tokens"].reshape(-1)]
    return {RESULT: context.tokenizer(params["tokenizer"]).decode(ids, skip_special=not params["special"])}


def render(inputs: Values, params: Values, context: OpContext) -> Values:
    """The template with each {} replaced by the next value."""
    values = inputs["values"] or []
    opened, closed = "\0", "\1"  # no text of a YAML file has these
    pieces = params["template"].replace("{{", opened).replace("}}", closed).split("{}")
    if len(pieces) != len(values) + 1:
        message = f"stage '{context.stage}' has {len(values)} values for {len(pieces) - 1} places of its template"
        raise PackageError(message, hint="one {} for each value; {{ and }} are single braces")
    pieces = [piece.replace(opened, "{").replace(closed, "}") for piece in pieces]
    return {RESULT: "".join(piece + _shown(value) for piece, value in zip(pieces, [*values, ""], strict=True))}


def join(inputs: Values, params: Values, context: OpContext) -> Values:
    """All texts in order, as one text and as one list."""
    members = [list(_texts(value, params["skip_empty"], context)) for value in inputs["values"]]
    flat = [text for member in members for text in member]
    items: list[str] = []
    for index, member in enumerate(members):
        items += [*(params["between"] if index else ()), *member]
    return {RESULT: params["separator"].join(flat), "items": items}


def _texts(value: Any, skip_empty: bool, context: OpContext) -> Iterator[str]:
    """The texts of a value, lists opened at any depth."""
    if isinstance(value, str):
        if value or not skip_empty:
            yield value
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item, skip_empty, context)
    elif value is not None:
        raise RequestError(f"stage '{context.stage}' takes texts, not {type(value).__name__}")


def _shown(value: Any) -> str:
    return str(value.item()) if isinstance(value, np.ndarray | np.generic) and value.size == 1 else str(value)

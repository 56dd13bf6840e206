"""``/v1/embeddings``: vectors of texts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.server.api_errors import ApiError, api_error, bad_request
from genai_pipeline.server.asking import Asked, follow, queueing, require
from genai_pipeline.server.bodies import Fields, read_json
from genai_pipeline.server.openai.embeddings import EmbeddingBody, embedding_object, read_embedding
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.task_runs import Borrowed, borrow_for, outputs, start
from genai_pipeline.tasks import shorten
from genai_pipeline.types import Usage

AT_ONCE: Final = 32  # requests under way for one body


async def create(request: Request) -> Response:
    """Embed texts, or token ids where the package takes them."""
    fields = Fields(await read_json(request))
    model = fields.text("model")
    await require(request, model, "embed")
    body = read_embedding(fields)
    fields.skip_rest(request.url.path)
    borrowed = await borrow_for(request, model, "embed")
    found: list[Mapping[str, Any]] = []
    tokens = 0
    for group in _groups(list(_pieces(body, borrowed)), AT_ONCE):
        asked = [await _start(request, borrowed, body, piece) for piece in group]
        found += await asyncio.gather(*map(outputs, asked))
        tokens += sum(each.prompt_tokens for each in asked)
    request.state.exchange.usage = Usage(tokens, 0)
    made = await asyncio.to_thread(_object, body, borrowed, found, tokens)
    return await json_reply(made)


def _pieces(body: EmbeddingBody, borrowed: Borrowed) -> Iterator[Any]:
    """The input as requests to the package: lists of texts where it takes these."""
    if body.tokens:
        yield from body.tokens
    elif borrowed.task.takes_list:
        yield from _groups(body.texts, borrowed.package.inputs[borrowed.task.input].max_items or len(body.texts))
    else:
        yield from body.texts


async def _start(request: Request, borrowed: Borrowed, body: EmbeddingBody, piece: Any) -> Asked:
    if not body.tokens:
        return await start(request, borrowed, piece, body.given, "input")
    options = queueing(request, {**body.given.options, "parameters": body.given.parameters})
    try:
        stream = await borrowed.pipe.aopen(tokens=piece, **options)
    except GenaiError as error:
        raise api_error(error, {"tokens": "input"}) from error
    return follow(request, borrowed.pipe, stream)


def _object(body: EmbeddingBody, borrowed: Borrowed, found: Sequence[Mapping[str, Any]], tokens: int) -> dict[str, Any]:
    """The response. Raises ApiError for more dimensions than there are."""
    vectors = _joined([each[borrowed.task.output] for each in found])
    if body.dimensions is not None:
        try:
            vectors = shorten(vectors, body.dimensions)
        except GenaiError as error:
            raise api_error(error) from error
    return embedding_object(vectors, borrowed.model, tokens, encoded=body.base64)


def _joined(values: Sequence[Any]) -> NDArray[Any]:
    """Vectors [n, d] of values that are vectors or lists of them. Raises ApiError where a package gave none."""
    if any(value is None for value in values):
        raise _no_vector()
    return np.concatenate([np.atleast_2d(value) for value in values]).astype(np.float32, copy=False)


def _no_vector() -> ApiError:
    return bad_request("the model gives no vector for this input", "input")


def _groups(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start_ in range(0, len(items), size):
        yield list(items[start_ : start_ + size])


ROUTES = [Route("/v1/embeddings", create, methods=["POST"])]

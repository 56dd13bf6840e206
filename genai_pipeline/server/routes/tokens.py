"""``/tokenize`` and ``/detokenize``: what a model makes of a text, and back."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.server.api_errors import api_error, bad_request
from genai_pipeline.server.asking import borrow
from genai_pipeline.server.bodies import Fields, read_json, read_media_json
from genai_pipeline.server.media_received import received
from genai_pipeline.server.openai.chat import read_messages
from genai_pipeline.server.openai.fields import refuse_others
from genai_pipeline.server.replies import json_reply
from genai_pipeline.types import PROMPT_OPTIONS

NAMES: Final = {"raw": "prompt"}


async def tokenize(request: Request) -> Response:
    """The tokens of a ``prompt`` as it stands, or of ``messages`` under the chat template, as a request has them."""
    fields = Fields(await read_media_json(request))
    model = fields.text("model")
    arguments = _prompt(fields)
    refuse_others(fields, {"system": "a message with the role system"}, (*PROMPT_OPTIONS, "reasoning_effort"))
    fields.skip_rest(request.url.path)
    pipe = await borrow(request, model)
    if "messages" in arguments:
        arguments["messages"] = await received(request, pipe, read_messages(arguments["messages"]))
    try:
        tokens = await asyncio.to_thread(pipe.tokenize, **arguments)
    except GenaiError as error:
        raise api_error(error, NAMES) from error
    name = request.state.exchange.model
    body = {"model": name, "tokens": list(tokens), "count": len(tokens), "max_model_len": pipe.context_length}
    return await json_reply(body)


async def detokenize(request: Request) -> Response:
    """The text of ``tokens``, that of control tokens too unless ``skip_special_tokens`` is true."""
    fields = Fields(await read_json(request))
    model = fields.text("model")
    tokens = fields.must("tokens", fields.list("tokens"))
    skip = fields.boolean("skip_special_tokens") or False
    fields.skip_rest(request.url.path)
    pipe = await borrow(request, model)
    try:
        text = await asyncio.to_thread(pipe.detokenize, tokens, skip_special=skip)
    except GenaiError as error:
        raise api_error(error) from error
    return await json_reply({"model": request.state.exchange.model, "prompt": text})


def _prompt(fields: Fields) -> dict[str, Any]:
    """What gives the text. Raises ApiError."""
    prompt, messages = fields.text("prompt"), fields.list("messages")
    if (prompt is None) == (messages is None):
        raise bad_request("exactly one of prompt and messages is needed", "prompt")
    if prompt is not None:
        fields.refuse("tools", "chat_template_kwargs")
        return {"prompt": prompt, "raw": True}
    given = {"tools": fields.list("tools"), "chat_template_kwargs": fields.mapping("chat_template_kwargs")}
    return {"messages": messages, **{name: value for name, value in given.items() if value is not None}}


ROUTES = [
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
]

"""``/v1/messages``: answers in Anthropic's shape, streamed or whole; ``/v1/messages/count_tokens``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import GenaiError
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.anthropic.message import MessageObject
from genai_pipeline.server.anthropic.request import NAMES, MessageRequest, read_count, read_request
from genai_pipeline.server.api_errors import ApiError, anthropic_body, api_error
from genai_pipeline.server.asking import ask_pipe, borrow
from genai_pipeline.server.bodies import read_media_json
from genai_pipeline.server.conversation import relocated
from genai_pipeline.server.media_received import received
from genai_pipeline.server.relay import Numbered, note_failure, numbered, opened, whole
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.sse import EventStreamResponse, Named


async def create(request: Request) -> Response:
    """Answer a conversation."""
    read = read_request(await read_media_json(request))
    pipe = await borrow(request, read.model)
    options = {**read.options, **_switch(read, pipe)}
    said = read.conversation
    asked = await ask_pipe(request, pipe, names=NAMES, places=said.places, messages=said.messages, **options)
    made = MessageObject(asked.model, options, pipe, asked.prompt_tokens)
    events = numbered((asked,))
    if read.stream:
        return EventStreamResponse(_events(await opened(request, events, NAMES), made))
    async for _, event in whole(events, NAMES):
        for _made in made.add(event):
            pass
    return await json_reply(made.object())


async def _events(events: AsyncGenerator[Numbered, None], made: MessageObject) -> AsyncIterator[Named]:
    for begun in made.begin():
        yield Named.of(begun)
    try:
        async with aclosing(whole(events, NAMES)) as told:
            async for _, event in told:
                for each in made.add(event):
                    yield Named.of(each)
    except ApiError as error:
        note_failure(error)
        yield Named.of(anthropic_body(error))
        return
    for ended in made.end():
        yield Named.of(ended)


async def count_tokens(request: Request) -> Response:
    """The number of tokens that the prompt of a request would have."""
    read = read_count(await read_media_json(request))
    pipe = await borrow(request, read.model)
    options = {**read.options, **_switch(read, pipe)}
    messages = await received(request, pipe, read.conversation.messages)
    try:
        tokens = await asyncio.to_thread(pipe.tokenize, messages=messages, **options)
    except GenaiError as error:
        raise relocated(api_error(error, NAMES), read.conversation.places) from error
    return await json_reply({"input_tokens": len(tokens)})


def _switch(read: MessageRequest, pipe: Pipeline) -> dict[str, Any]:
    """What keeps a package from reasoning that does reason; others need no telling."""
    return {"reasoning_effort": "none"} if read.thinks is False and pipe.reasons else {}


ROUTES = [
    Route("/v1/messages", create, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
]

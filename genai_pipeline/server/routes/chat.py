"""``/v1/chat/completions``: an answer in a conversation."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.asking import Asked, ask
from genai_pipeline.server.bodies import Fields, read_media_json
from genai_pipeline.server.fingerprints import fingerprint
from genai_pipeline.server.openai.chat import ChatBody, read_chat
from genai_pipeline.server.openai.chunks import ChatChunks, ChatCompletion
from genai_pipeline.server.openai.envelope import Envelope
from genai_pipeline.server.openai.fields import tier_of
from genai_pipeline.server.openai.pieces import Pieces
from genai_pipeline.server.relay import chunks, numbered, opened, whole
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.segments import calls_stream
from genai_pipeline.server.session_turns import ask_session, with_model
from genai_pipeline.server.sse import EventStreamResponse

ID: Final = "chatcmpl"


async def create(request: Request) -> Response:
    """Answer a conversation, streamed or whole."""
    fields = Fields(await read_media_json(request))
    body = read_chat(fields)
    fields.skip_rest(request.url.path)
    return await reply(request, body, await _asked(request, body))


async def _asked(request: Request, body: ChatBody) -> Asked:
    """The answer to a conversation that the request has, or that a session has and one message goes on with."""
    if body.session is None:
        return await ask(request, body.model, names=body.names, **body.arguments)
    if len(body.messages) != 1:
        raise bad_request("with a session, messages has the one message that is said now", "messages")
    with_model(request, body.model, body.session)
    return await ask_session(request, body.session, body.messages[0], body.turn_options, body.names, "messages[0]")


async def reply(request: Request, body: ChatBody, asked: Asked) -> Response:
    """The response with an answer, streamed or whole."""
    runs = await fingerprint(asked.pipe)
    envelope = Envelope.make(ID, asked.model, runs, tier_of(body.priority))
    pieces = Pieces(live=calls_stream(body.options, asked.pipe), scored=body.scored)
    events = numbered((asked,))
    if body.stream:
        writer = ChatChunks(envelope, pieces, asked.pipe.token_bytes, usage=body.usage)
        return EventStreamResponse(chunks(await opened(request, events, body.names), writer, body.names))
    completion = ChatCompletion(envelope, pieces, asked.pipe.token_bytes, scored=body.scored, metadata=body.metadata)
    async for _, event in whole(events, body.names):
        completion.event(event)
    return await json_reply(await asyncio.to_thread(completion.object) if body.scored else completion.object())


ROUTES = [Route("/v1/chat/completions", create, methods=["POST"])]

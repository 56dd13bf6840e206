"""``/v1/sessions``: conversations that the server keeps, with their state; turns go on in them."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.bodies import Fields, read_json, read_media_json
from genai_pipeline.server.media_received import described
from genai_pipeline.server.openai.chat import read_chat
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.routes.chat import reply
from genai_pipeline.server.session_store import Held
from genai_pipeline.server.session_turns import ask_session, open_session, sessions

MESSAGE = ("role", "content", "name", "tool_call_id")


async def create(request: Request) -> Response:
    """A new session of a model, perhaps with messages that it begins with."""
    fields = Fields(await read_media_json(request))
    model, messages = fields.text("model"), fields.list("messages") or []
    fields.skip_rest(request.url.path)
    return await json_reply(_shown(await open_session(request, model, messages)))


async def list_sessions(request: Request) -> Response:
    """The sessions of the caller, the latest first."""
    held = sessions(request).list(request.state.caller.id)
    return await json_reply({"object": "list", "data": [_shown(each) for each in held], "has_more": False})


async def inspect(request: Request) -> Response:
    """A session with its conversation."""
    held = _held(request)
    messages = [] if held.session is None else described(held.session.messages)
    return await json_reply({**_shown(held), "messages": messages})


async def fork(request: Request) -> Response:
    """Another session that goes on from here by itself."""
    Fields(await read_json(request)).skip_rest(request.url.path)
    held, store = _held(request), sessions(request)
    store.check_room(held.caller)
    with held.claim() as session:
        forked = await asyncio.to_thread(session.fork)
    return await json_reply(_shown(store.add(held.caller, held.model, forked, held.seconds, held)))


async def rewind(request: Request) -> Response:
    """Go back to the moment after ``turn`` turns."""
    fields = Fields(await read_json(request))
    turn = fields.must("turn", fields.integer("turn", low=0))
    fields.skip_rest(request.url.path)
    held = _held(request)
    with held.claim() as session:
        await asyncio.to_thread(session.rewind, held.mark(turn))
        held.turns = turn
        held.lengths = {number: lengths for number, lengths in held.lengths.items() if number <= turn}
    sessions(request).touch(held)
    return await json_reply(_shown(held))


async def say(request: Request) -> Response:
    """A turn: something is said, with the options of a chat; the answer is that of a chat completion."""
    given = await read_media_json(request)
    message = {name: given.pop(name) for name in MESSAGE if given.get(name) is not None}
    fields = Fields({**given, "messages": [{"role": "user", **message}]})
    body = read_chat(fields)
    fields.refuse("model", "session")
    fields.skip_rest(request.url.path)
    id = request.path_params["id"]
    asked = await ask_session(request, id, body.messages[0], body.turn_options, body.names)
    return await reply(request, body, asked)


async def delete(request: Request) -> Response:
    """End a session."""
    held = _held(request)
    if held.session is not None:
        held.live()
    sessions(request).remove(held)
    return await json_reply({"id": held.id, "object": "session", "deleted": True})


def _held(request: Request) -> Held:
    return sessions(request).get(request.state.caller.id, request.path_params["id"])


def _shown(held: Held) -> dict[str, Any]:
    session = held.session
    return {
        "id": held.id,
        "object": "session",
        "model": held.model,
        "created_at": int(held.created),
        "parent": held.parent,
        "status": "ended" if session is None else "idle" if held.busy is None else "busy",
        "turns": held.turns,
        "messages_count": 0 if session is None else len(session.messages),
        "tokens": 0 if session is None else len(session.tokens),
        "idle_seconds": held.seconds,
    }


ROUTES = [
    Route("/v1/sessions", create, methods=["POST"]),
    Route("/v1/sessions", list_sessions, methods=["GET"]),
    Route("/v1/sessions/{id}", inspect, methods=["GET"]),
    Route("/v1/sessions/{id}", delete, methods=["DELETE"]),
    Route("/v1/sessions/{id}/messages", say, methods=["POST"]),
    Route("/v1/sessions/{id}/fork", fork, methods=["POST"]),
    Route("/v1/sessions/{id}/rewind", rewind, methods=["POST"]),
]

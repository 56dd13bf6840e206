"""Turns of sessions through HTTP: a turn counts once its answer is whole; given up or failed, it never was."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from starlette.requests import Request

from genai_pipeline.engine.session import MESSAGE_FIELDS, AsyncTurn, Mark
from genai_pipeline.errors import GenaiError
from genai_pipeline.server.api_errors import ApiError, api_error, bad_request
from genai_pipeline.server.asking import Asked, borrow, follow, queueing
from genai_pipeline.server.exchange import Exchange
from genai_pipeline.server.media_received import check_kept, received
from genai_pipeline.server.openai.chat import read_messages
from genai_pipeline.server.session_store import Held, SessionStore
from genai_pipeline.types import Event

ROLES: Final = ("user", "tool", "system")  # of what is said in a turn


def sessions(request: Request) -> SessionStore:
    """The server's sessions, made when they are first needed."""
    state = request.app.state
    if not hasattr(state, "sessions"):
        limits = state.config.limits
        state.sessions = SessionStore(limits.sessions, limits.session_seconds)
        state.host.on_unload(state.sessions.end_all)
    store: SessionStore = state.sessions
    return store


async def open_session(request: Request, model: str | None, messages: list[Any]) -> Held:
    """A new session that begins with messages. Raises ApiError."""
    store, caller = sessions(request), request.state.caller.id
    store.check_room(caller)
    pipe = await borrow(request, model)
    messages = await received(request, pipe, read_messages(messages))
    try:
        if messages:  # to see whether a turn after them can be rendered
            probe = [*messages, {"role": "user", "content": "-"}]
            await asyncio.to_thread(pipe.tokenize, messages=probe)
        session = await asyncio.to_thread(pipe.session)
    except GenaiError as error:
        raise api_error(error) from error
    if messages:
        session.rewind(Mark(tuple(messages), ()))
    bounds: Mapping[str, Any] = pipe.plan.package.session or {}
    return store.add(caller, request.state.exchange.model, session, bounds.get("idle_seconds"))


async def ask_session(
    request: Request, id: str, message: Any, options: Mapping[str, Any], names: Mapping[str, str], place: str = ""
) -> Asked:
    """Say something in a session and follow the answer; ``options`` are those of ``Pipeline.aopen``.

    ``place``: where the message stands in the body; "": its fields are those of the body.
    Raises ApiError 404, 409, 410, or what ``ask`` raises.
    """
    store = sessions(request)
    held = store.get(request.state.caller.id, id)
    said = _message(message)
    held.live()
    pipe = await borrow(request, held.model)
    try:
        (given,) = await received(request, pipe, [said])
    except ApiError as error:
        raise _placed(error, 0, place) from error
    check_kept(request, held.live().messages, given)
    content = given.pop("content")
    exchange: Exchange = request.state.exchange
    session = exchange.held.enter_context(held.claim())
    try:
        turn = await session.aopen(content, **given, **queueing(request, options))
    except GenaiError as error:
        raise _placed(api_error(error, names), len(session.messages), place) from error
    return follow(request, pipe, _Turn(turn, held, store))


def _placed(error: ApiError, index: int, place: str) -> ApiError:
    """An error about message ``index`` of a conversation, about where that stands in the body."""
    inside = re.compile(rf"\bmessages\[{index}\]\.")
    fields, whole = (f"{place}." if place else ""), place or "the message"
    error.message = re.sub(rf"\bmessages\[{index}\]", whole, inside.sub(fields, error.message))
    if error.param is not None:
        error.param = re.sub(rf"\bmessages\[{index}\]", place or "content", inside.sub(fields, error.param))
    return error


def with_model(request: Request, model: str | None, id: str) -> None:
    """Raises ApiError 400 where a request names another model than that of its session."""
    held = sessions(request).get(request.state.caller.id, id)
    if model and request.app.state.host.resolve(model) != held.model:
        raise bad_request(f"this session is one of the model '{held.model}'", "model")


class _Turn(AsyncIterator[Event]):
    """The events of a turn; the session has gone on before the last one is given."""

    def __init__(self, turn: AsyncTurn, held: Held, store: SessionStore) -> None:
        self._turn = turn
        self._held = held
        self._store = store
        self.prompt_tokens = turn.prompt_tokens

    async def __anext__(self) -> Event:
        event = await anext(self._turn)
        if event.finish_reason is not None and event.error is None:
            await self._settle(whole=event.finish_reason != "cancelled")
        return event

    async def aclose(self) -> None:
        """The turn never was, unless it is whole."""
        await self._turn.abandon()

    async def _settle(self, *, whole: bool) -> None:
        held = self._held
        if whole and held.session is not None:
            await self._turn.aclose()
            held.turns += 1
            held.note()
            self._store.touch(held)
        held.busy = None  # the next turn may come before this response has ended


def _message(message: Any) -> dict[str, Any]:
    """What is said, as arguments of ``Session.aopen``. Raises ApiError."""
    if not isinstance(message, dict):
        raise bad_request("what is said in a session must be a message", "messages")
    role = message.get("role")
    if role not in ROLES:
        names = ", ".join(f"'{name}'" for name in ROLES)
        raise bad_request(f"a turn of a session is said by one of {names}", "role")
    if message.get("content") is None:
        raise bad_request("content is required", "content")
    return {name: message[name] for name in ("role", "content", *MESSAGE_FIELDS) if message.get(name) is not None}

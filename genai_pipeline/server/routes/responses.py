"""``/v1/responses``: answers to items, streamed or whole; stored ones can be read, gone on from and deleted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.asking import ask_pipe, borrow
from genai_pipeline.server.bodies import read_media_json
from genai_pipeline.server.conversation import Conversation
from genai_pipeline.server.json_text import encode, text_size
from genai_pipeline.server.openai.responses_input import Item, read_items, without_data
from genai_pipeline.server.openai.responses_object import ResponseObject
from genai_pipeline.server.openai.responses_request import NAMES, ResponseRequest, read_request
from genai_pipeline.server.openai.responses_store import MAX_ITEMS, ResponseStore, Stored
from genai_pipeline.server.relay import Numbered, note_failure, numbered, opened, whole
from genai_pipeline.server.replies import json_reply
from genai_pipeline.server.sse import EventStreamResponse, Named

PREVIOUS = "previous_response_id"


async def create(request: Request) -> Response:
    """Answer the items of a request."""
    read = read_request(await read_media_json(request))
    store = _store(request)
    previous = None if read.previous is None else store.get(request.state.caller.id, read.previous, PREVIOUS)
    conversation = _conversation(read, previous)
    pipe = await borrow(request, read.model)
    places, messages = conversation.places, conversation.messages
    asked = await ask_pipe(request, pipe, names=NAMES, places=places, messages=messages, **read.options)
    made = ResponseObject(read, asked.model, pipe)
    keeping = _Keeping(store, request.state.caller.id, read, previous)
    events = numbered((asked,))
    if read.stream:
        return EventStreamResponse(_events(await opened(request, events, NAMES), made, keeping))
    async for _, event in whole(events, NAMES):
        for _made in made.add(event):
            pass
    await keeping.keep(made)
    return await json_reply(made.object())


async def _events(
    events: AsyncGenerator[Numbered, None], made: ResponseObject, keeping: _Keeping
) -> AsyncIterator[Named]:
    for begun in made.begin():
        yield Named.of(begun)
    try:
        async with aclosing(events):
            async for _, event in events:
                for each in made.add(event):
                    yield Named.of(each)
    except ApiError as error:
        made.fail(error)
    failed = made.error()
    if failed is not None:
        note_failure(failed)
    await keeping.keep(made)
    yield Named.of(made.end())


class _Keeping:
    """Stores a response with its conversation, if that is wanted."""

    def __init__(self, store: ResponseStore, caller: str, read: ResponseRequest, previous: Stored | None) -> None:
        self._store = store
        self._caller = caller
        self._read = read
        self._previous = previous

    async def keep(self, made: ResponseObject) -> None:
        """Store a response that has ended with an answer."""
        if not (self._read.store and made.succeeded):
            return
        response = made.object()
        before, nbytes = ((), 0) if self._previous is None else (self._previous.items, self._previous.nbytes)
        inputs = (*before, *self._read.items)
        nbytes += 2 * sum(map(text_size, self._read.items)) + 2 * len(await encode(response))
        self._store.put(self._caller, response, (*inputs, *response["output"]), len(inputs), nbytes)


def _conversation(read: ResponseRequest, previous: Stored | None) -> Conversation:
    """The whole conversation; instructions are those of this request alone. Raises ApiError."""
    conversation = Conversation()
    if read.instructions is not None:
        conversation.say("system", read.instructions, "instructions")
    if previous is not None:
        if len(previous.items) + len(read.items) > MAX_ITEMS:
            raise bad_request(f"the conversation has more than {MAX_ITEMS} items", PREVIOUS)
        read_items(previous.items, conversation, PREVIOUS)
    read_items(read.items, conversation)
    return conversation


async def retrieve(request: Request) -> Response:
    """A stored response."""
    for name in ("stream", "starting_after", "include", "include_obfuscation"):
        if request.query_params.get(name) not in (None, "", "false"):
            raise bad_request(f"{name} is not supported for stored responses", name, code="unsupported_field")
    return await json_reply(_stored(request).response)


async def input_items(request: Request) -> Response:
    """The items that a stored response answered, the latest first unless ``order=asc``."""
    stored = _stored(request)
    items: list[Item] = [
        {"id": f"item_{index}", "type": "message", **without_data(item)}
        for index, item in enumerate(stored.items[: stored.inputs])
    ]
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise bad_request("order must be 'asc' or 'desc'", "order")
    ordered = items if order == "asc" else items[::-1]
    page, more = _page(request, ordered)
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return await json_reply({"object": "list", "data": page, **ends, "has_more": more})


def _page(request: Request, items: list[Item]) -> tuple[list[Item], bool]:
    """The items after ``after``, at most ``limit`` of them, and whether there are more. Raises ApiError."""
    given = request.query_params.get("limit", "20")
    if not (given.isascii() and given.isdecimal() and len(given) <= 6 and 1 <= int(given) <= 100):
        raise bad_request("limit must be between 1 and 100", "limit")
    after = request.query_params.get("after")
    ids = [item["id"] for item in items]
    if after is not None and after not in ids:
        raise bad_request("after is the id of no item of this response", "after")
    start = 0 if after is None else ids.index(after) + 1
    end = start + int(given)
    return items[start:end], end < len(items)


async def delete(request: Request) -> Response:
    """Forget a stored response."""
    id = request.path_params["id"]
    _store(request).delete(request.state.caller.id, id)
    return await json_reply({"id": id, "object": "response", "deleted": True})


async def cancel(request: Request) -> Response:
    """Refused: only responses in the background could be cancelled. Raises ApiError."""
    _stored(request)
    raise bad_request("only responses in the background can be cancelled, and there are none", code="not_background")


def _stored(request: Request) -> Stored:
    return _store(request).get(request.state.caller.id, request.path_params["id"])


def _store(request: Request) -> ResponseStore:
    """The server's store, made when it is first needed."""
    state = request.app.state
    if not hasattr(state, "responses"):
        limits = state.config.limits
        state.responses = ResponseStore(most=limits.responses, seconds=limits.response_seconds)
    store: ResponseStore = state.responses
    return store


ROUTES = [
    Route("/v1/responses", create, methods=["POST"]),
    Route("/v1/responses/{id}", retrieve, methods=["GET"]),
    Route("/v1/responses/{id}", delete, methods=["DELETE"]),
    Route("/v1/responses/{id}/cancel", cancel, methods=["POST"]),
    Route("/v1/responses/{id}/input_items", input_items, methods=["GET"]),
]

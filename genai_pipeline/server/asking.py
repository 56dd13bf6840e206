"""How a route gets a model to answer: the package is pinned, the caller's limits kept, the request under way.

    asked = await ask(request, fields.text("model"), messages=messages, names=NAMES, **options)
    async for event in asked: ...

Nothing has to be closed: what a request holds is let go when its response has ended, also when its client left.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from starlette.requests import Request

from genai_pipeline.errors import CapacityError, GenaiError
from genai_pipeline.option_values import as_number
from genai_pipeline.pipeline import Pipeline
from genai_pipeline.server.abilities import unsupported_task
from genai_pipeline.server.api_errors import api_error, unavailable
from genai_pipeline.server.callers import Caller
from genai_pipeline.server.conversation import relocated
from genai_pipeline.server.exchange import Exchange
from genai_pipeline.server.media_received import received
from genai_pipeline.types import Event


class Asked(AsyncIterator[Event]):
    """The events of a request under way; ``pipe`` answers it, ``model`` is the name it is served by."""

    def __init__(self, events: AsyncIterator[Event], pipe: Pipeline, exchange: Exchange) -> None:
        self._events = events
        self._exchange = exchange
        self.pipe = pipe
        self.model = exchange.model or ""
        self.prompt_tokens: int = getattr(events, "prompt_tokens", 0)
        exchange.prompted += self.prompt_tokens

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self._exchange.note(event)
        return event

    async def aclose(self) -> None:
        """Cancel the request unless it has ended."""
        close = getattr(self._events, "aclose", None)
        if close is not None:
            await close()


async def borrow(request: Request, model: str | None) -> Pipeline:
    """The pipeline of a model, loaded for as long as the request lasts; the caller's limits on requests are kept.

    ``request.state.exchange.model`` has the name it is served by. Raises ApiError 404, 429 or 503.
    """
    exchange: Exchange = request.state.exchange
    caller: Caller = request.state.caller
    host = request.app.state.host
    exchange.model = host.resolve(model)
    exchange.held.enter_context(caller.request())
    exchange.held.callback(lambda: caller.spend(exchange.spent))
    try:
        pipe: Pipeline = await exchange.held.enter_async_context(host.use(exchange.model))
    except CapacityError as error:
        raise unavailable("there is no room for the model", code="model_too_large") from error
    return pipe


async def require(request: Request, model: str | None, task: str) -> str:
    """The name of a model that does a task (of ``Abilities``). Raises ApiError 404, or 400 where it does not."""
    host = request.app.state.host
    name: str = host.resolve(model)
    known = await host.abilities()
    if task not in known[name].tasks:
        raise unsupported_task(name, task, known)
    return name


async def ask(
    request: Request,
    model: str | None,
    prompt: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Asked:
    """Ask a model; ``prompt`` and ``arguments`` are those of ``Pipeline.aopen``.

    ``names`` are the interface's own names of options, for messages. Raises ApiError for what cannot be.
    """
    pipe = await borrow(request, model)
    return await ask_pipe(request, pipe, prompt, names=names, **arguments)


async def ask_pipe(
    request: Request,
    pipe: Pipeline,
    prompt: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
    places: Sequence[str] = (),
    **arguments: Any,
) -> Asked:
    """Ask a pipeline that was borrowed; one request may ask several times. Raises ApiError.

    ``places``: where each message stands in the body, if not in a list of messages.
    """
    await require(request, request.state.exchange.model, "generate")
    if "messages" in arguments:
        arguments["messages"] = await received(request, pipe, arguments["messages"])
    try:
        stream = await pipe.aopen(prompt, **queueing(request, arguments))
    except GenaiError as error:
        raise relocated(api_error(error, names), places) from error
    return follow(request, pipe, stream)


def follow(request: Request, pipe: Pipeline, events: AsyncIterator[Event]) -> Asked:
    """Take note of the events of a borrowed pipeline, and close them with the response."""
    exchange: Exchange = request.state.exchange
    asked = Asked(events, pipe, exchange)
    exchange.held.push_async_callback(asked.aclose)
    return asked


def queueing(request: Request, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the caller's share of the machine and the server's time limit."""
    most: float = request.app.state.config.limits.request_seconds
    asked = arguments.get("timeout")
    seconds = as_number(most if asked is None else asked)
    timeout = asked if seconds is None or not math.isfinite(seconds) else min(seconds, most)  # others are refused
    return {**arguments, "timeout": timeout, "key": request.state.caller.id}

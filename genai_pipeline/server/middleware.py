"""Around every request: its id, the gate, its client's line, errors in the interface's own shape, one log line.

A plain ASGI application: whatever a route holds is let go here, whether the response ended, failed or lost its client.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from genai_pipeline.errors import GenaiError
from genai_pipeline.server.api_errors import CLIENT_GONE, ApiError, api_error, error_body, error_headers
from genai_pipeline.server.exchange import Exchange, request_id
from genai_pipeline.server.gate import Gate
from genai_pipeline.server.json_text import dumps
from genai_pipeline.server.line import ClientGoneError, Line

_log = logging.getLogger("genai_pipeline.server")


class Around:
    """The middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        server: Starlette = scope["app"]
        exchange = Exchange(request_id(Headers(scope=scope).get("x-request-id")), scope["method"], scope["path"])
        exchange.client = (scope.get("client") or (None,))[0]
        line = Line(scope, receive, send, server.state.config.limits)
        named = _naming(line, exchange)
        try:
            await self._serve(scope, line, named, exchange)
        except ClientGoneError:
            exchange.status = CLIENT_GONE
        except asyncio.CancelledError:
            exchange.status = CLIENT_GONE
            task = asyncio.current_task()
            if not line.gone or task is None:
                raise
            task.uncancel()
        finally:
            line.hang_up()
            exchange.status = exchange.status or line.status
            exchange.route = _route(scope)
            server.state.metrics.ended(exchange)
            _log_line(exchange)

    async def _serve(self, scope: Scope, line: Line, send: Send, exchange: Exchange) -> None:
        """The response, an error as one; what was held is let go before this ends."""
        state: dict[str, Any] = scope.setdefault("state", {})
        async with exchange.held:
            try:
                gate: Gate = scope["app"].state.gate
                caller = exchange.held.enter_context(gate.enter(scope["path"], Headers(scope=scope), scope["method"]))
                exchange.caller = caller.id
                state.update(id=exchange.id, caller=caller, exchange=exchange)
                line.watch()
                await self._app(scope, line.receive, send)
            except (ApiError, GenaiError, HTTPException) as error:
                await _answer(scope, line, send, exchange, error)
            except (ClientGoneError, asyncio.CancelledError):
                raise
            except Exception as error:  # noqa: BLE001 - logged, and answered with a 500
                _log.exception("a request failed", extra={"event": "failed", "id": exchange.id})
                await _answer(scope, line, send, exchange, error)


def _naming(line: Line, exchange: Exchange) -> Send:
    """What sends: the response gets its request's id, under the names that the two interfaces have for it.

    What is held is let go before the last byte, so that a client that has its answer finds its place free.
    """

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = headers["request-id"] = exchange.id
        elif not message.get("more_body", False):
            await exchange.held.aclose()
        await line.send(message)

    return send


async def _answer(scope: Scope, line: Line, send: Send, exchange: Exchange, error: Exception) -> None:
    """Tell the client of an error, if nothing was sent yet; else end the connection without an end of the response."""
    told = _http_error(error) if isinstance(error, HTTPException) else api_error(error)
    exchange.error = told.code or told.type
    reason = error.__cause__ or error  # routes have made an ApiError of it, for clients
    if told.status >= 500 and isinstance(reason, GenaiError):
        extra = {"event": "failed", "id": exchange.id, "error": reason.code, "reason": reason.message}
        _log.error("a request failed: %s", reason.message, extra=extra)
    if line.started:
        if not line.complete:
            raise ClientGoneError
        return
    body = {**error_body(scope["path"], told), "request_id": exchange.id}
    headers = {"content-type": "application/json", **error_headers(told)}
    if isinstance(error, HTTPException):
        headers |= {name.lower(): value for name, value in (error.headers or {}).items()}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": told.status, "headers": raw})
    await send({"type": "http.response.body", "body": dumps(body).encode("utf-8", errors="replace")})


def _http_error(error: HTTPException) -> ApiError:
    """What the router says: no such path, or another method."""
    if error.status_code == 404:
        return ApiError(404, "there is nothing at this path", code="not_found")
    if error.status_code == 405:
        return ApiError(405, "this path does not take this method", code="method_not_allowed")
    return ApiError(error.status_code, "the request cannot be served", code="http_error")


def _route(scope: Scope) -> str:
    """The path pattern of the route that took the request: few, so that metrics stay small."""
    route = scope.get("route")
    return getattr(route, "path", "unmatched")


def _log_line(exchange: Exchange) -> None:
    usage = exchange.usage
    figures: dict[str, Any] = {
        "client": exchange.client,
        "caller": exchange.caller,
        "model": exchange.model,
        "first_token_seconds": None if exchange.first_token is None else round(exchange.first_token, 4),
        "prompt_tokens": None if usage is None else usage.prompt_tokens,
        "completion_tokens": (exchange.generated or None) if usage is None else usage.completion_tokens,
        "error": exchange.error,
    }
    extra = {
        "event": "request",
        "id": exchange.id,
        "method": exchange.method,
        "route": exchange.route,
        "status": exchange.status,
        "seconds": round(exchange.seconds, 4),
        **{name: value for name, value in figures.items() if value is not None},
    }
    _log.info("%s %s %d", exchange.method, exchange.route, exchange.status, extra=extra)

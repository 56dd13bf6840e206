"""What stands around every request: errors, ids, log lines, and that nothing held stays behind."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from genai_pipeline.errors import EngineFailedError, GraphRunError, PackageNotFoundError, QueueFullError, RequestError
from genai_pipeline.server.api_errors import anthropic_body, api_error, openai_body, unavailable
from genai_pipeline.server.json_text import encode
from genai_pipeline.server.logs import JsonFormatter, TextFormatter
from genai_pipeline.server.sse import EventStreamResponse, Named, frame


def add(server: Any, path: str, endpoint: Any) -> None:
    server.app.router.routes.append(Route(path, endpoint, methods=["GET", "POST"]))


def test_what_nobody_expected_is_a_500_that_tells_nothing(serving: Any, tiny: Any, http: Any, caplog: Any) -> None:
    server = serving(tiny())

    async def boom(request: Request) -> Response:
        raise ZeroDivisionError("the secret of /etc/passwd")

    add(server, "/boom", boom)
    answer = http.get(f"{server.url}/boom", headers={"x-request-id": "r1"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["error"]["code"] == "internal_error"
    assert answer.json()["request_id"] == "r1"
    (record,) = (record for record in caplog.records if getattr(record, "event", "") == "failed")
    assert record.exc_info is not None
    assert "ZeroDivisionError" in JsonFormatter().format(record)
    assert http.get(f"{server.url}/health").status_code == 200


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_request_holds_is_let_go_however_it_ends(serving: Any, tiny: Any, http: Any, fails: bool) -> None:
    server = serving(tiny(name="a"))
    let_go: list[str] = []

    async def hold(request: Request) -> Response:
        request.state.exchange.held.callback(let_go.append, "held")
        if fails:
            raise RuntimeError
        return Response("fine")

    add(server, "/hold", hold)
    assert http.get(f"{server.url}/hold").status_code == (500 if fails else 200)
    assert let_go == ["held"]


def test_a_stream_that_fails_is_cut_without_an_end(serving: Any, tiny: Any, http: Any) -> None:
    server = serving(tiny())
    closed: list[bool] = []

    async def chunks() -> AsyncIterator[str]:
        try:
            yield "one"
            raise RuntimeError
        finally:
            closed.append(True)

    async def stream(request: Request) -> Response:
        return EventStreamResponse(chunks())

    add(server, "/stream", stream)
    with http.stream("GET", f"{server.url}/stream") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: one"
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert closed == [True]
    assert http.get(f"{server.url}/health").status_code == 200


def test_events_are_framed_as_the_two_interfaces_have_them() -> None:
    assert frame("[DONE]") == b"data: [DONE]\n\n"
    assert frame({"a": "\n\u2028é"}) == 'data: {"a":"\\n\u2028é"}\n\n'.encode()
    assert frame(Named("ping", {"type": "ping"})) == b'event: ping\ndata: {"type":"ping"}\n\n'
    assert frame("a\nb") == b"data: a\ndata: b\n\n"


def test_large_values_are_written_in_slices_between_which_others_run() -> None:
    async def main() -> int:
        turns, done = 0, False

        async def count() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        value = {"list": list(range(50_000)), "text": "é"}
        text = await encode(value)
        done = True
        await other
        assert json.loads(text) == value
        return turns

    assert asyncio.run(main()) > 20


def test_errors_of_the_project_have_statuses_and_keep_the_inside_to_themselves() -> None:
    wrong = api_error(
        RequestError("max_new_tokens is wrong", param="max_new_tokens", hint="fix"), {"max_new_tokens": "max_tokens"}
    )
    assert (wrong.status, wrong.param, wrong.message) == (400, "max_tokens", "max_tokens is wrong (fix)")
    full = api_error(QueueFullError("full"))
    assert (full.status, full.retry_after) == (429, 1)
    for error, status in (
        (PackageNotFoundError("/home/x is gone"), 503),
        (GraphRunError("component decoder of /home/x"), 500),
        (EngineFailedError("x"), 500),
        (KeyError("/home/x"), 500),
    ):
        told = api_error(error)
        assert told.status == status
        assert "/home" not in told.message
        assert "decoder" not in told.message


def test_the_two_shapes_of_an_error() -> None:
    error = unavailable("not now", code="busy")
    assert openai_body(error) == {
        "error": {"message": "not now", "type": "server_error", "param": None, "code": "busy"}
    }
    assert anthropic_body(error) == {"type": "error", "error": {"type": "overloaded_error", "message": "not now"}}


def test_a_log_line_is_json_or_text() -> None:
    record = logging.makeLogRecord({"msg": "%s is loaded", "args": ("it",), "levelname": "INFO", "event": "loaded"})
    record.created = 0.25
    record.bytes = 3
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "info",
        "event": "loaded",
        "bytes": 3,
        "message": "it is loaded",
    }
    assert TextFormatter().format(record) == "1970-01-01T00:00:00.250Z info it is loaded bytes=3"

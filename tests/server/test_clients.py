"""Clients that leave, dawdle or talk nonsense cost nobody else anything."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from genai_pipeline.server.limits import Limits

LONG = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 15_000, "ignore_eos": True}
SHORT = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4, "temperature": 0}
ONE_SLOT = {"max_batch": 1, "prefix_cache": False}


@pytest.fixture
def ended() -> Any:
    """``ended(status)`` waits until the log tells of a request that ended so."""
    seen: list[int] = []
    change = threading.Condition()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "event", "") == "request":
                with change:
                    seen.append(record.status)  # type: ignore[attr-defined]
                    change.notify_all()

    watch, logger = Watch(), logging.getLogger("genai_pipeline.server")
    before = logger.level
    logger.addHandler(watch)
    logger.setLevel(logging.INFO)

    def wait(status: int) -> None:
        with change:
            assert change.wait_for(lambda: status in seen, timeout=60), seen

    yield wait
    logger.removeHandler(watch)
    logger.setLevel(before)


def post(url: str, body: dict[str, Any], buffer: int | None = None) -> socket.socket:
    """A connection on which a request was sent."""
    address = urlsplit(url)
    content = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.settimeout(60)
    sock.connect((address.hostname, address.port))
    sock.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return sock


def await_chunk(sock: socket.socket) -> None:
    """Read until a stream has begun."""
    heard = b""
    while b"chatcmpl" not in heard:
        piece = sock.recv(4096)
        assert piece, heard
        heard += piece


def pages(http: Any, url: str) -> int:
    (model,) = http.get(f"{url}/health").json()["models"]
    used: int = model["pages"]["arena"]["used"]
    return used


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(
    live: Any, tiny: Any, http: Any, ended: Callable[[int], None], stream: bool
) -> None:
    package = tiny(context_length=20_000)
    url = live(package, load=ONE_SLOT)
    sock = post(url, {**LONG, "stream": stream})
    if stream:
        await_chunk(sock)
    else:
        while not http.get(f"{url}/health").json()["models"][0]["running"]:
            pass
    sock.close()
    ended(499)
    answer = http.post(f"{url}/v1/chat/completions", json=SHORT).json()
    expected = package.answer_text(package.vocabulary.chat_prompt(("user", "ab")), 4)
    assert answer["choices"][0]["message"]["content"] == expected
    while pages(http, url):
        pass
    metrics = http.get(f"{url}/metrics").text
    assert 'genai_requests_cancelled_total{model="tiny-kv"} 1.0' in metrics
    assert 'status="499"} 1.0' in metrics


def test_a_client_that_leaves_while_it_waits_is_forgotten(
    live: Any, tiny: Any, http: Any, ended: Callable[[int], None]
) -> None:
    url = live(tiny(context_length=20_000), load=ONE_SLOT)
    with contextlib.closing(post(url, {**LONG, "stream": True})) as first:
        await_chunk(first)
        waiting = post(url, SHORT)
        while not http.get(f"{url}/health").json()["models"][0]["queue"]:
            pass
        waiting.close()
        ended(499)
        while http.get(f"{url}/health").json()["models"][0]["queue"]:
            pass


def test_a_client_that_reads_nothing_is_given_up(live: Any, tiny: Any, http: Any, ended: Callable[[int], None]) -> None:
    url = live(tiny(context_length=20_000), load=ONE_SLOT, limits=Limits(send_seconds=0.5))
    with contextlib.closing(post(url, {**LONG, "stream": True, "logprobs": True, "top_logprobs": 20}, 4096)):
        ended(499)
        assert http.post(f"{url}/v1/chat/completions", json=SHORT).status_code == 200
        while pages(http, url):
            pass


def test_a_body_that_does_not_come_is_a_408(live: Any, tiny: Any) -> None:
    url = live(tiny(), limits=Limits(body_seconds=0.2))
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as sock:
        head = f"POST /tokenize HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        assert sock.recv(4096).startswith(b"HTTP/1.1 408")


def test_headers_that_do_not_come_end_the_connection(live: Any, tiny: Any) -> None:
    url = live(tiny(), limits=Limits(header_seconds=0.2))
    address = urlsplit(url)
    for start in (b"", b"GET /health HTTP/1.1\r\nHost: "):
        with socket.create_connection((address.hostname, address.port), timeout=60) as sock:
            sock.sendall(start)
            assert sock.recv(4096) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000,
    ],
)
def test_what_is_no_http_is_told_so(live: Any, tiny: Any, http: Any, sent: bytes) -> None:
    url = live(tiny())
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as sock:
        sock.sendall(sent)
        answer = b"".join(iter(lambda: sock.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"
    assert http.get(f"{url}/health").status_code == 200


def test_requests_that_go_wrong_change_nothing_for_a_stream(live: Any, tiny: Any, http: Any) -> None:
    package = tiny(context_length=2000)
    url = live(package)
    said = [{"role": "user", "content": "ab"}]
    bad: list[dict[str, Any]] = [
        {},
        {"messages": said, "logit_bias": {"999999": 1}},
        {"messages": said, "response_format": {"type": "json_schema"}},
        {"messages": said, "max_tokens": 10**6},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://10.0.0.1/x"}}]}]},
    ]
    body = {"messages": said, "max_tokens": 500, "temperature": 0, "ignore_eos": True, "stream": True}
    texts: list[str] = []
    with http.stream("POST", f"{url}/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        for wrong in bad:
            assert http.post(f"{url}/v1/chat/completions", json=wrong).status_code == 400
        for line in lines:
            if line.startswith("data: {"):
                texts += [choice["delta"].get("content") or "" for choice in json.loads(line[6:])["choices"]]
    prompt = package.vocabulary.chat_prompt(("user", "ab"))
    assert "".join(texts) == package.vocabulary.decode(package.expected(prompt, 500))


def test_a_silent_stream_has_comments(live: Any, tiny: Any) -> None:
    url = live(tiny(context_length=20_000), load=ONE_SLOT, limits=Limits(keep_alive_seconds=0.1))
    with contextlib.closing(post(url, {**LONG, "stream": True})) as first:
        await_chunk(first)
        with contextlib.closing(post(url, {**SHORT, "stream": True})) as second:
            heard = b""
            while heard.count(b": keep-alive\n\n") < 2:
                piece = second.recv(4096)
                assert piece, heard
                heard += piece
    assert heard.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in heard

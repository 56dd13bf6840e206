"""Streams of chat completions: they say what the whole answer says, end once, and harm nobody when they break off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

USER = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"
ONE_PLACE = {"max_batch": 1, "memory": 128 << 20}  # room for one long answer

Say = Callable[..., httpx.Response]


@pytest.fixture
def chat(live: Any, tiny: Any, http: httpx.Client) -> Callable[..., Say]:
    """``chat(kind, **package)``: a server of one package, asked by ``say(**body)``; greedy."""

    def serve(kind: str = "script", *, config: dict[str, Any] | None = None, **package: Any) -> Say:
        url = live(tiny(kind, **package), **(config or {}))
        return lambda **body: http.post(url + PATH, json={"messages": USER, "temperature": 0, **body})

    return serve


def events(response: httpx.Response) -> list[Any]:
    """The chunks of a stream; the sign that it is over is a text."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return list(parsed(response.text.split("\n\n")))


def parsed(frames: list[str]) -> Iterator[Any]:
    for frame in frames:
        if frame and not frame.startswith(":"):
            data = frame.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


def joined(chunks: list[Any], field: str = "content", index: int = 0) -> str:
    deltas = [choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"] if choice["index"] == index]
    return "".join(delta.get(field) or "" for delta in deltas)


@pytest.mark.parametrize(
    "text", ["\U0001f389", "caf\u00e9 \U0001f389!", "\ud55c\uad6d\uc5b4", "\u041f\u0440\u0438\u0432\u0435\u0442"]
)
def test_characters_of_several_tokens_are_sent_whole(live: Any, tiny: Any, text: str) -> None:
    """B01: alone and in a batch of three, the joined deltas are the text."""
    import asyncio

    url = live(tiny("bytes", text=text))

    async def say(client: httpx.AsyncClient, stream: bool) -> httpx.Response:
        body = {"messages": USER, "temperature": 0, "stream": stream}
        return await client.post(url + PATH, json=body)

    async def all_of(count: int) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*(say(client, True) for _ in range(count)), say(client, False))

    for count in (1, 3):
        *streams, whole = asyncio.run(all_of(count))
        assert whole.json()["choices"][0]["message"]["content"] == text
        for stream in streams:
            chunks = events(stream)
            assert joined(chunks) == text
            assert "\ufffd" not in stream.text


def test_an_answer_cut_inside_a_character_is_valid_text(chat: Any) -> None:
    """B02."""
    say = chat("bytes", text="\U0001f389")
    whole = say(max_tokens=2)
    body = json.loads(whole.content.decode("utf-8"))
    assert body["choices"][0]["finish_reason"] == "length"
    chunks = events(say(max_tokens=2, stream=True))
    assert joined(chunks) == body["choices"][0]["message"]["content"]
    assert say().json()["choices"][0]["message"]["content"] == "\U0001f389"


@pytest.mark.parametrize(
    ("body", "text", "reason"),
    [
        ({}, "O P Q R", "stop"),
        ({"max_tokens": 2}, "O P", "length"),
        ({"stop": ["O P Q"]}, "", "stop"),
        ({"stop": ["P Q"]}, "O ", "stop"),
        ({"n": 2}, "O P Q R", "stop"),
    ],
)
def test_each_choice_has_one_finish_reason_after_its_content(chat: Any, body: Any, text: str, reason: str) -> None:
    """B03, B07."""
    say = chat()
    chunks = events(say(stream=True, **body))
    assert chunks[-1] == "[DONE]"
    whole = say(**body).json()
    for index in range(body.get("n", 1)):
        own = [choice for chunk in chunks[:-1] for choice in chunk["choices"] if choice["index"] == index]
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + [reason]
        assert own[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
        assert own[-1]["delta"] == {}
        assert joined(chunks, index=index) == text
        assert whole["choices"][index]["message"]["content"] == text
        assert whole["choices"][index]["finish_reason"] == reason
    heads = {(chunk["id"], chunk["object"], chunk["model"], chunk["created"]) for chunk in chunks[:-1]}
    assert len(heads) == 1


def test_a_prompt_that_is_too_long_is_a_status_and_no_stream(chat: Any) -> None:
    response = chat(context_length=16)(stream=True, messages=[{"role": "user", "content": "x" * 50}])
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("options", "last"), [({}, False), ({"stream_options": {}}, False), ({"stream_options": None}, False),
                          ({"stream_options": {"include_usage": False}}, False),
                          ({"stream_options": {"include_usage": True}}, True)]
)  # fmt: skip
def test_usage_is_told_once_and_only_when_it_was_asked_for(chat: Any, options: dict[str, Any], last: bool) -> None:
    """B37."""
    say = chat()
    *chunks, _ = events(say(stream=True, **options))
    if not last:
        assert not any("usage" in chunk for chunk in chunks)
        assert all(chunk["choices"] for chunk in chunks)
        return
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    usage = say().json()["usage"]
    assert {**chunks[-1]["usage"], "prompt_tokens_details": {}} == {**usage, "prompt_tokens_details": {}}


def test_reasoning_has_a_field_of_its_own(chat: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["reasoning"] = {"open": "<think>", "close": "</think>"}

    say = chat(script=("<think>", "Hm", ".", "</think>", "\n\n", "Yes", "."), edit=edit)
    message = say().json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Yes.")
    chunks = events(say(stream=True, stream_options={"include_usage": True}))
    assert (joined(chunks, "reasoning_content"), joined(chunks)) == ("Hm.", "Yes.")
    assert chunks[-2]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3  # the opening tag among them
    cut = say(reasoning_budget=1).json()["choices"][0]["message"]
    assert cut["reasoning_content"] == "Hm"


def test_a_client_that_leaves_frees_its_place(serving: Any, tiny: Any, http: httpx.Client) -> None:
    """B30: one place; a stream that is dropped after two chunks, and a whole answer that nobody waits for."""
    server = serving(tiny("kv", context_length=60_000, name="it"), load=ONE_PLACE)
    long = {"messages": USER, "temperature": 0, "max_tokens": 50_000}
    for _ in range(2):
        with http.stream("POST", server.url + PATH, json={**long, "stream": True}) as response:
            lines = response.iter_lines()
            for _ in range(4):
                next(lines)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(server.url + PATH, json=long, timeout=0.3)
    after = http.post(server.url + PATH, json={"messages": USER, "temperature": 0, "max_tokens": 3})
    assert after.json()["usage"]["completion_tokens"] == 3
    (model,) = server.running.app.state.host.stats()
    assert model["engine"]["requests"]["cancelled"] == 4
    assert model["engine"]["running"] == 0
    assert model["requests"] == 0


BAD: list[dict[str, Any]] = [
    {"logit_bias": {"999999": 1}},
    {"messages": []},
    {"grammar": "start: ("},
    {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/no"}}}},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}]},
    {"messages": [{"role": "user", "content": "x" * 5000}]},
    {"model": "nobody"},
    {"temperature": "hot"},
]


def test_bad_requests_do_nothing_to_a_stream_under_way(serving: Any, tiny: Any, http: httpx.Client) -> None:
    """B31."""
    package = tiny("kv", context_length=3000)
    url = serving(package).url
    body = {"messages": USER, "temperature": 0, "max_tokens": 1500}
    expected = http.post(url + PATH, json=body).json()["choices"][0]["message"]["content"]
    frames: list[str] = []
    with http.stream("POST", url + PATH, json={**body, "stream": True}) as response:
        lines = response.iter_lines()
        frames += [next(lines) for _ in range(4)]
        for bad in BAD:
            assert httpx.post(url + PATH, json={**body, **bad}, timeout=60).status_code in (400, 404)
        frames += lines
    assert joined(list(parsed(frames))) == expected


def test_a_full_queue_is_a_429_before_the_first_byte(serving: Any, tiny: Any, http: httpx.Client) -> None:
    server = serving(tiny("kv", context_length=60_000), load={**ONE_PLACE, "max_queue": 0})
    long = {"messages": USER, "temperature": 0, "max_tokens": 50_000, "stream": True}
    with http.stream("POST", server.url + PATH, json=long) as response:
        lines = response.iter_lines()  # a reader that is dropped hangs up
        next(lines)
        refused = httpx.post(server.url + PATH, json=long, timeout=60)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"


def test_a_time_limit_is_a_status_before_the_first_byte_and_an_event_after_it(
    serving: Any, tiny: Any, http: httpx.Client
) -> None:
    server = serving(tiny("kv", context_length=60_000), load=ONE_PLACE)
    long = {"messages": USER, "temperature": 0, "max_tokens": 50_000}
    late = http.post(server.url + PATH, json={**long, "timeout": 0.5})
    assert (late.status_code, late.json()["error"]["code"]) == (408, "timeout")
    chunks = events(http.post(server.url + PATH, json={**long, "timeout": 0.5, "stream": True}))
    assert chunks[-1]["error"]["code"] == "timeout"
    assert joined(chunks)
    assert not any(choice["finish_reason"] for chunk in chunks[:-1] for choice in chunk["choices"])
    with http.stream("POST", server.url + PATH, json={**long, "stream": True}) as response:
        lines = response.iter_lines()  # a reader that is dropped hangs up
        next(lines)
        waiting = httpx.post(server.url + PATH, json={**long, "timeout": 0.2, "stream": True}, timeout=60)
        assert (waiting.status_code, waiting.json()["error"]["code"]) == (408, "timeout")


def test_a_stream_that_waits_keeps_its_line_alive(serving: Any, tiny: Any, http: httpx.Client) -> None:
    from genai_pipeline.server.limits import Limits

    limits = Limits(keep_alive_seconds=0.05)
    server = serving(tiny("kv", context_length=60_000), load=ONE_PLACE, limits=limits)
    long = {"messages": USER, "temperature": 0, "max_tokens": 50_000, "stream": True}
    with http.stream("POST", server.url + PATH, json=long) as first:
        lines = first.iter_lines()  # a reader that is dropped hangs up
        next(lines)
        with httpx.stream("POST", server.url + PATH, json={**long, "timeout": 0.5}, timeout=60) as second:
            assert second.status_code == 200
            heard = [line for line in second.iter_lines() if line]
    assert heard[0] == ": keep-alive"
    assert json.loads(heard[-1].removeprefix("data: "))["error"]["code"] == "timeout"

"""Sessions through HTTP: turns that go on, forks, rewinding, whose they are, limits, and how they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from genai_pipeline.engine.session import Mark
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.limits import Limits
from genai_pipeline.server.session_store import MAX_TURNS, Held, SessionStore

OPTIONS = {"temperature": 0, "max_tokens": 6, "ignore_eos": True}


class Talk:
    """Sessions of one server and key, by HTTP."""

    def __init__(self, http: httpx.Client, url: str, key: str = "") -> None:
        self._http = http
        self._url = url
        self._headers = {"x-api-key": key} if key else {}

    def call(self, method: str, path: str, status: int = 200, body: dict[str, Any] | None = None) -> Any:
        answer = self._http.request(method, self._url + path, json=body, headers=self._headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def open(self, status: int = 200, **body: Any) -> Any:
        return self.call("POST", "/v1/sessions", status, body)

    def post(self, id: str, what: str, status: int = 200, **body: Any) -> Any:
        return self.call("POST", f"/v1/sessions/{id}/{what}", status, body)

    def say(self, id: str, content: str, **body: Any) -> str:
        answer = self.post(id, "messages", content=content, **{**OPTIONS, **body})
        return answer["choices"][0]["message"]["content"]

    def chat(self, messages: list[Any], status: int = 200, **body: Any) -> Any:
        return self.call("POST", "/v1/chat/completions", status, {"messages": messages, **OPTIONS, **body})

    def get(self, id: str, status: int = 200) -> Any:
        return self.call("GET", f"/v1/sessions/{id}", status)


@pytest.fixture
def talk(live: Any, tiny: Any, http: httpx.Client) -> Callable[..., Talk]:
    """``talk(**config)``: a server of one package whose answers depend on the whole conversation."""
    return lambda **config: Talk(http, live(tiny("kv", context_length=1024, name="it"), **config))


def texts(answer: Any) -> str:
    return answer["choices"][0]["message"]["content"]


def test_turns_go_on_and_compute_only_what_is_new(talk: Any) -> None:
    user = talk()
    session = user.open(messages=[{"role": "system", "content": "be good"}])
    assert (session["object"], session["model"], session["turns"], session["status"]) == ("session", "it", 0, "idle")
    first = user.post(session["id"], "messages", content="one", **OPTIONS)
    second = user.post(session["id"], "messages", content="two", **OPTIONS)
    conversation = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": texts(first)},
        {"role": "user", "content": "two"},
    ]
    whole = user.chat(conversation)
    assert texts(second) == texts(whole)
    assert second["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert (second["object"], second["model"]) == ("chat.completion", "it")
    seen = user.get(session["id"])
    assert seen["messages"] == [*conversation, {"role": "assistant", "content": texts(second)}]
    assert (seen["turns"], seen["messages_count"]) == (2, 5)
    assert seen["tokens"] == second["usage"]["total_tokens"]


def test_a_chat_of_the_official_client_goes_on_in_a_session(talk: Any, live: Any) -> None:
    user = talk()
    session, other = user.open(), user.open()
    wanted = [user.say(other["id"], "one"), user.say(other["id"], "two")]
    extra = {"session": session["id"], "ignore_eos": True}
    with openai.OpenAI(base_url=f"{user._url}/v1", api_key="none", max_retries=0) as client:
        ask: dict[str, Any] = {"model": "", "temperature": 0, "max_tokens": 6, "extra_body": extra}
        first = client.chat.completions.create(messages=[{"role": "user", "content": "one"}], **ask)
        stream = client.chat.completions.create(messages=[{"role": "user", "content": "two"}], stream=True, **ask)
        second = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert [first.choices[0].message.content, second] == wanted
    assert user.get(session["id"])["messages"] == user.get(other["id"])["messages"]
    user.chat([{"role": "user", "content": "a"}] * 2, 400, session=session["id"])
    user.chat([{"role": "user", "content": "a"}], 404, session="sess_none")
    user.chat([{"role": "user", "content": "a"}], 404, session=session["id"], model="other")


def test_forks_go_their_own_way_and_rewinding_takes_turns_back(talk: Any) -> None:
    user = talk()
    session = user.open()["id"]
    user.say(session, "one")
    fork = user.post(session, "fork")
    assert (fork["parent"], fork["turns"]) == (session, 1)
    left, right = user.say(session, "two"), user.say(fork["id"], "two")
    assert left == right
    third = user.say(session, "three")
    assert user.get(fork["id"])["turns"] == 2
    assert user.post(session, "rewind", turn=2)["turns"] == 2
    assert user.say(session, "three") == third
    assert user.post(session, "rewind", turn=0)["messages_count"] == 0
    assert user.say(session, "one") == user.get(fork["id"])["messages"][1]["content"]
    assert user.post(session, "rewind", 400, turn=2)["error"]["param"] == "turn"
    assert user.post(session, "rewind", 400)["error"]["param"] == "turn"


def test_listing_and_deleting(talk: Any) -> None:
    user = talk()
    ids = [user.open()["id"] for _ in range(3)]
    assert len(set(ids)) == 3
    assert all(id.startswith("sess_") and len(id) > 32 for id in ids)
    assert [each["id"] for each in user.call("GET", "/v1/sessions")["data"]] == ids[::-1]
    assert user.call("DELETE", f"/v1/sessions/{ids[1]}") == {"id": ids[1], "object": "session", "deleted": True}
    assert user.get(ids[1], 404)["error"]["code"] == "session_not_found"
    user.post(ids[1], "messages", 404, content="x")
    assert [each["id"] for each in user.call("GET", "/v1/sessions")["data"]] == [ids[2], ids[0]]


def test_sessions_belong_to_their_key_and_are_counted(live: Any, tiny: Any, http: httpx.Client) -> None:
    keys = (ApiKey.of("one", "first"), ApiKey.of("two", "second"))
    url = live(tiny("kv"), keys=keys, limits=Limits(sessions=2))
    mine, theirs = Talk(http, url, "first"), Talk(http, url, "second")
    id = mine.open()["id"]
    theirs.get(id, 404)
    theirs.call("DELETE", f"/v1/sessions/{id}", 404)
    theirs.post(id, "fork", 404)
    assert theirs.call("GET", "/v1/sessions")["data"] == []
    mine.post(id, "fork")
    assert mine.open(429)["error"]["code"] == "too_many_sessions"
    mine.post(id, "fork", 429)
    theirs.open()
    mine.call("DELETE", f"/v1/sessions/{id}")
    mine.open()


def test_a_session_ends_with_its_package(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("kv", name="one"), tiny("kv", name="two"))
    user = Talk(http, url)
    ended, other = user.open(model="one")["id"], user.open(model="two")["id"]
    user.say(ended, "hello")
    assert user.call("POST", "/admin/models/one/unload") is not None
    assert user.get(ended)["status"] == "ended"
    error = user.post(ended, "messages", 410, content="x")["error"]
    assert (error["code"], "unloaded" in error["message"]) == ("session_ended", True)
    user.post(ended, "fork", 410)
    user.post(ended, "rewind", 410, turn=0)
    user.chat([{"role": "user", "content": "x"}], 410, session=ended)
    user.say(other, "still here")
    user.call("DELETE", f"/v1/sessions/{ended}")
    user.say(user.open(model="one")["id"], "again")


def test_a_turn_that_is_given_up_or_refused_never_was(live: Any, tiny: Any, http: httpx.Client) -> None:
    user = Talk(http, live(tiny("kv", context_length=1 << 16), load={"memory": 256 << 20}))
    session = user.open()["id"]
    first = user.say(session, "one")
    before = user.get(session)
    body = {"content": "two", **OPTIONS, "max_tokens": 60_000, "stream": True}
    with http.stream("POST", f"{user._url}/v1/sessions/{session}/messages", json=body) as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        assert user.get(session)["status"] == "busy"
        assert user.post(session, "messages", 409, content="x")["error"]["code"] == "session_busy"
        user.call("DELETE", f"/v1/sessions/{session}", 409)
    wait_until(lambda: user.get(session)["status"] == "idle")
    user.post(session, "messages", 400, content="two", temperature=-1)
    user.post(session, "messages", 400, content="two", n=2)
    user.post(session, "messages", 400, content="two", role="assistant")
    user.post(session, "messages", 400, role="user")
    assert user.get(session) == before
    fresh = user.open()["id"]
    assert user.say(fresh, "one") == first
    assert user.say(session, "two") == user.say(fresh, "two")


def wait_until(done: Callable[[], bool], most: int = 2000) -> None:
    """The server hears of a client's leaving in its own time; each look is a request of its own."""
    for _ in range(most):
        if done():
            return
    raise AssertionError("it never came")


def test_one_of_two_turns_at_once_is_told_so(talk: Any) -> None:
    user = talk()
    session = user.open()["id"]
    statuses: list[int] = []

    def turn() -> None:
        with httpx.Client(timeout=60) as client:
            body = {"content": "x", **OPTIONS, "max_tokens": 200}
            statuses.append(client.post(f"{user._url}/v1/sessions/{session}/messages", json=body).status_code)

    threads = [threading.Thread(target=turn) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 409}
    assert user.get(session)["turns"] == statuses.count(200) >= 1


def test_what_a_session_begins_with_is_checked(talk: Any) -> None:
    user = talk()
    assert user.open(400, messages=[{"role": "narrator", "content": "x"}])["error"]["param"] == "messages[0].role"
    user.open(400, messages="x")
    user.open(404, model="other")
    user.open(400, model=3)
    assert user.call("GET", "/v1/sessions")["data"] == []


class FakeSession:
    """Stands for a session where only its lengths and its end matter."""

    def __init__(self) -> None:
        self.closed = threading.Event()

    def checkpoint(self) -> Mark:
        return Mark((), ())

    def close(self) -> None:
        self.closed.set()


def test_idle_sessions_end_in_time() -> None:
    async def run() -> None:
        now = [0.0]
        store = SessionStore(2, 100, clock=lambda: now[0])
        sessions: list[Any] = [FakeSession(), FakeSession()]
        held = [store.add("me", "it", session, seconds) for session, seconds in zip(sessions, (None, 30), strict=True)]
        now[0] = 31
        assert store.list("me") == [held[0]]
        await asyncio.to_thread(sessions[1].closed.wait, 10)
        assert sessions[1].closed.is_set()
        now[0] = 90
        store.touch(held[0])
        now[0] = 189
        assert store.get("me", held[0].id) is held[0]
        with held[0].claim():
            now[0] = 500
            assert store.get("me", held[0].id) is held[0]  # nothing ends under way
        with pytest.raises(ApiError):
            store.get("me", held[0].id)
        await asyncio.to_thread(sessions[0].closed.wait, 10)
        assert sessions[0].closed.is_set()

    asyncio.run(run())


def test_only_so_many_turns_can_be_gone_back() -> None:
    session: Any = FakeSession()
    held = Held("id", "me", "it", session, 10)
    for turn in range(MAX_TURNS + 5):
        held.turns = turn
        held.note()
    assert len(held.lengths) == MAX_TURNS
    with pytest.raises(ApiError, match=r"between 5 and 1004"):
        held.mark(4)
    held.mark(5)

"""Keys: who may come in, and how much each may use."""

from __future__ import annotations

import math
from typing import Any

import pytest

from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.callers import ApiKey, Caller, Callers
from genai_pipeline.server.limits import Bucket, KeyLimits

ALICE, ROOT = "alice-secret-1", "root-secret-22"
KEYS = (ApiKey.of("alice", ALICE), ApiKey.of("root", ROOT, admin=True))
SAID = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_a_minutes_worth_and_fills_again() -> None:
    clock = Clock()
    bucket = Bucket(60, clock)
    assert bucket.wait(60) == 0
    bucket.take(61)
    assert math.isclose(bucket.wait(), 2.0)
    clock.now += 2
    assert bucket.wait() == 0
    clock.now += 1000
    bucket.take(60)
    assert math.isclose(bucket.wait(600), 60.0)  # more than it ever holds counts as all of it


def test_limits_of_a_caller_say_when_to_come_back() -> None:
    clock = Clock()
    caller = Caller("a", KeyLimits(requests_per_minute=2, tokens_per_minute=600, concurrent=2), clock=clock)
    with caller.request(), caller.request(), pytest.raises(ApiError) as crowded, caller.request():
        pass
    assert (crowded.value.status, crowded.value.code) == (429, "concurrency_limit_exceeded")
    with pytest.raises(ApiError) as often, caller.request():
        pass
    assert (often.value.code, often.value.retry_after) == ("rate_limit_exceeded", 30.0)
    clock.now += 60
    caller.spend(650)
    with pytest.raises(ApiError) as much, caller.request():
        pass
    assert math.isclose(much.value.retry_after or 0, 5.1)
    assert caller.running == 0


def test_a_key_is_found_by_its_digest_alone() -> None:
    callers = Callers(KEYS, KeyLimits())
    assert callers.identify({"authorization": f"Bearer {ALICE}"}).id == "alice"
    assert callers.identify({"authorization": f"bearer  {ROOT} "}).id == "root"
    assert callers.identify({"x-api-key": ALICE}).id == "alice"
    assert ALICE not in repr(KEYS)
    for headers in ({}, {"authorization": ALICE}, {"authorization": "Bearer "}, {"x-api-key": ALICE + "x"}):
        with pytest.raises(ApiError) as caught:
            callers.identify(headers)
        assert caught.value.status == 401


def test_a_key_is_needed_where_keys_are_configured(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="it"), keys=KEYS)
    missing = http.get(f"{url}/v1/models")
    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "missing_api_key")
    assert missing.headers["www-authenticate"] == "Bearer"
    wrong = http.get(f"{url}/v1/models", headers={"authorization": "Bearer wrong-secret"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    assert "wrong-secret" not in wrong.text
    for headers in ({"authorization": f"Bearer {ALICE}"}, {"x-api-key": ALICE}):
        assert http.get(f"{url}/v1/models", headers=headers).status_code == 200
    assert http.post(f"{url}/v1/chat/completions", json=SAID).status_code == 401


def test_health_tells_strangers_nothing_but_that_it_lives(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), keys=KEYS)
    assert http.get(f"{url}/health").json() == {"status": "ok"}
    assert "models" in http.get(f"{url}/health", headers={"x-api-key": ALICE}).json()
    assert http.get(f"{url}/ready").status_code == 200


def test_metrics_and_administration_need_a_key_of_an_administrator(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), keys=KEYS)
    for path in ("/metrics", "/admin/status"):
        assert http.get(f"{url}{path}").status_code == 401
        refused = http.get(f"{url}{path}", headers={"x-api-key": ALICE})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_admin")
        assert http.get(f"{url}{path}", headers={"x-api-key": ROOT}).status_code == 200


def test_requests_per_minute_are_counted_for_each_key(live: Any, tiny: Any, http: Any) -> None:
    keys = (ApiKey.of("a", ALICE, KeyLimits(requests_per_minute=2)), ApiKey.of("b", ROOT))
    url = live(tiny(), keys=keys)
    answers = [http.post(f"{url}/v1/chat/completions", json=SAID, headers={"x-api-key": ALICE}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 30
    assert answers[2].json()["error"]["type"] == "rate_limit_error"
    assert http.post(f"{url}/v1/chat/completions", json=SAID, headers={"x-api-key": ROOT}).status_code == 200


def test_tokens_per_minute_delay_what_comes_after(live: Any, tiny: Any, http: Any) -> None:
    keys = (ApiKey.of("a", ALICE, KeyLimits(tokens_per_minute=10)),)
    url = live(tiny(), keys=keys)
    headers = {"x-api-key": ALICE}
    first = http.post(f"{url}/v1/chat/completions", json=SAID, headers=headers)
    assert first.json()["usage"]["total_tokens"] > 10
    again = http.post(f"{url}/v1/chat/completions", json={**SAID, "stream": True}, headers=headers)
    assert again.status_code == 429
    assert int(again.headers["retry-after"]) > 1


def test_requests_at_once_are_counted_for_each_key(live: Any, tiny: Any, http: Any) -> None:
    keys = (ApiKey.of("a", ALICE, KeyLimits(concurrent=1)),)
    url = live(tiny(context_length=20_000), keys=keys)
    headers = {"x-api-key": ALICE}
    long = {**SAID, "max_tokens": 15_000, "stream": True, "ignore_eos": True}
    with http.stream("POST", f"{url}/v1/chat/completions", json=long, headers=headers) as stream:
        lines = stream.iter_lines()  # the response ends with it
        next(lines)
        second = http.post(f"{url}/v1/chat/completions", json=SAID, headers=headers)
        assert (second.status_code, second.json()["error"]["code"]) == (429, "concurrency_limit_exceeded")

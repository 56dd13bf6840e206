"""Where the server listens, by which names it is reached, and what of it is where."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.server.config import ServerConfig
from genai_pipeline.server.keys import key_of

KEY = key_of("it", "secret-secret", "a test")


def test_another_name_for_this_machine_is_refused(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), hosts=("models.test",))
    for host in ("localhost:80", "127.0.0.1", "[::1]:1", "models.test", "MODELS.test:8000"):
        assert http.get(f"{url}/v1/models", headers={"host": host}).status_code == 200
    for host in ("evil.test", "evil.test:8000", "127.0.0.1.evil.test", ""):
        refused = http.get(f"{url}/v1/models", headers={"host": host})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "host_not_allowed")


def test_pages_of_other_origins_change_nothing(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), cors=("https://ours.test",))
    name = http.get(f"{url}/v1/models").json()["data"][0]["id"]
    for origin in ("http://evil.test", "null", "http://127.0.0.1.evil.test:80"):
        refused = http.post(f"{url}/admin/models/{name}/unload", headers={"origin": origin})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "origin_not_allowed")
    for origin in (url, "https://ours.test"):
        assert http.post(f"{url}/admin/models/{name}/load", headers={"origin": origin}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])
def test_beyond_this_machine_keys_or_a_word_are_needed(tiny: Any, host: str) -> None:
    package = tiny().path
    with pytest.raises(OptionError) as caught:
        ServerConfig.of([package], host=host)
    assert caught.value.param == "host"
    assert ServerConfig.of([package], host=host, keys=(KEY,)).keys
    assert ServerConfig.of([package], host=host, open_to_all=True).open_to_all


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_on_this_machine_none_is_needed(tiny: Any, host: str) -> None:
    assert ServerConfig.of([tiny().path], host=host).is_local


def test_only_listed_origins_may_use_it_from_a_browser(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), cors=("https://app.test",), keys=(KEY,))
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    good = http.options(f"{url}/v1/chat/completions", headers={"origin": "https://app.test", **ask})
    assert good.status_code == 200
    assert good.headers["access-control-allow-origin"] == "https://app.test"
    bad = http.options(f"{url}/v1/chat/completions", headers={"origin": "https://evil.test", **ask})
    assert bad.status_code == 400
    assert "access-control-allow-origin" not in bad.headers
    refused = http.get(f"{url}/v1/models", headers={"origin": "https://app.test"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.test"  # so that the page can read why


def test_without_a_list_no_origin_may(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    assert (
        "access-control-allow-origin"
        not in http.get(f"{url}/v1/models", headers={"origin": "https://app.test"}).headers
    )


def test_metrics_and_administration_can_have_a_port_of_their_own(serving: Any, tiny: Any, http: Any) -> None:
    server = serving(tiny(), admin_port=0)
    assert server.url != server.admin_url
    for path in ("/metrics", "/admin/status"):
        assert http.get(f"{server.url}{path}").status_code == 404
        assert http.get(f"{server.admin_url}{path}").status_code == 200
    assert http.get(f"{server.admin_url}/v1/models").status_code == 404
    assert http.get(f"{server.admin_url}/health").json()["status"] == "ok"


def test_metrics_and_administration_can_be_switched_off(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(), metrics=False, admin=False)
    for path in ("/metrics", "/admin/status"):
        assert http.get(f"{url}{path}").status_code == 404


def test_metrics_count_requests_tokens_and_engines(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="it"), warm_up=False)
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 4}
    usage = http.post(f"{url}/v1/chat/completions", json=body).json()["usage"]
    http.get(f"{url}/v1/nothing/{'x' * 50}")
    answer = http.get(f"{url}/metrics")
    lines = answer.text.splitlines()
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'genai_http_requests_total{method="POST",route="/v1/chat/completions",status="200"} 1.0' in lines
    assert 'genai_http_requests_total{method="GET",route="unmatched",status="404"} 1.0' in lines
    prompt, answered = usage["prompt_tokens"], usage["completion_tokens"]
    assert f'genai_http_tokens_total{{kind="prompt",model="it"}} {prompt}.0' in lines
    assert f'genai_tokens_generated_total{{model="it"}} {answered}.0' in lines
    assert 'genai_model_state{model="it",state="loaded"} 1.0' in lines
    assert any(line.startswith('genai_runs_total{kind="decode",model="it"}') for line in lines)


def test_too_many_requests_at_once_are_turned_away_before_the_first_byte(live: Any, tiny: Any, http: Any) -> None:
    from genai_pipeline.server.limits import Limits

    url = live(tiny(context_length=20_000), limits=Limits(requests=1))
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 15_000, "ignore_eos": True, "stream": True}
    with http.stream("POST", f"{url}/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()  # the response ends with it
        next(lines)
        refused = http.post(f"{url}/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "server_busy")
        assert refused.headers["retry-after"] == "1"
        assert http.get(f"{url}/health").status_code == 200


def test_a_full_queue_is_a_429_before_the_first_byte(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(context_length=20_000), load={"max_batch": 1, "max_queue": 0})
    body = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 15_000, "ignore_eos": True, "stream": True}
    with http.stream("POST", f"{url}/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()  # the response ends with it
        next(lines)
        refused = http.post(f"{url}/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "1"

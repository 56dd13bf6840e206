"""Every option of a request on every route: it has its effect, or it is a 400 that names it; none is dropped."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from genai_pipeline.types import RequestOptions

USER = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 3},
}
WRONG = {"not": ["what", {"any": "option"}]}  # refused by whoever reads it
# Options whose field of the interface is read in a form of its own, with a value that is refused there.
FORMS: dict[str, Any] = {
    "key": "mine",
    "parameters": 5,
    "chat_template_kwargs": 5,
    "response_format": 5,
    "tool_choice": 5,
    "logit_bias": {"x": 1},
}
HINTS = {
    ("/v1/chat/completions", "system"): "use a message with the role system",
    ("/v1/chat/completions", "raw"): "use /v1/completions",
    ("/v1/chat/completions", "suffix"): "use /v1/completions",
    ("/v1/chat/completions", "tokens"): "use /v1/completions",
    ("/v1/completions", "tools"): "use /v1/chat/completions",
    ("/v1/completions", "prompt_logprobs"): "use echo and logprobs",
    ("/v1/responses", "system"): "use instructions",
    ("/v1/responses", "max_new_tokens"): "use max_output_tokens",
    ("/v1/messages", "max_new_tokens"): "use max_tokens",
}


@pytest.fixture(scope="module")
def options() -> list[str]:
    return ["prompt", *RequestOptions.__annotations__]


@pytest.mark.parametrize("path", BODIES)
def test_no_option_is_dropped(live: Any, tiny: Any, http: httpx.Client, options: list[str], path: str) -> None:
    url = live(tiny("script"))
    for name in options:
        answer = http.post(url + path, json={**BODIES[path], name: FORMS.get(name, WRONG)})
        assert answer.status_code == 400, (name, answer.text)
        said = answer.json()["error"]
        assert name in said["message"] or path == "/v1/messages", said
        assert HINTS.get((path, name), "") in said["message"]
        assert said.get("param", name).split(".")[0] == name


@pytest.mark.parametrize("path", BODIES)
def test_null_is_as_good_as_absent(live: Any, tiny: Any, http: httpx.Client, options: list[str], path: str) -> None:
    url = live(tiny("script"))
    nothing = dict.fromkeys(options)
    assert http.post(url + path, json={**nothing, **BODIES[path]}).status_code == 200


@pytest.mark.parametrize("name", ["system", "raw", "suffix", "tokens", "reasoning_effort", "images", "parameters"])
def test_what_counts_tokens_drops_nothing_that_makes_the_prompt(
    live: Any, tiny: Any, http: httpx.Client, name: str
) -> None:
    url = live(tiny("script"))
    for path in ("/tokenize", "/v1/messages/count_tokens"):
        if (path, name) != ("/v1/messages/count_tokens", "system"):
            answer = http.post(url + path, json={"messages": USER, name: FORMS.get(name, "x")})
            assert (answer.status_code, name in answer.text) == (400, True), answer.text


def test_variables_of_the_template_are_counted(live: Any, tiny: Any, http: httpx.Client) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{% if more %} O P{% endif %}"
    url = live(tiny("script", chat_template=template))
    body = {"messages": USER, "chat_template_kwargs": {"more": True}}
    counted = [http.post(f"{url}/v1/messages/count_tokens", json=given).json() for given in (body, {"messages": USER})]
    assert counted[0]["input_tokens"] > counted[1]["input_tokens"]


def test_a_turn_of_a_session_is_a_chat(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script"))
    id = http.post(f"{url}/v1/sessions", json={}).json()["id"]
    for name in ("system", "raw", "suffix", "tokens", "prompt_logprobs"):
        answer = http.post(f"{url}/v1/sessions/{id}/messages", json={"content": "hi", name: "x"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)

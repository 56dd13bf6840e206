"""Log probabilities of chat completions: one entry per token, texts and bytes, streamed and not."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
import pytest

PATH = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def ask(http: httpx.Client, url: str, **body: Any) -> Any:
    response = http.post(url + PATH, json={**BODY, **body})
    assert response.status_code == 200, response.text
    return response


def streamed(response: httpx.Response) -> list[dict[str, Any]]:
    frames = [frame.removeprefix("data: ") for frame in response.text.split("\n\n") if frame]
    choices = [choice for frame in frames[:-1] for choice in json.loads(frame)["choices"]]
    return [entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]]


@pytest.mark.parametrize(("top", "count"), [({}, 0), ({"top_logprobs": 0}, 0), ({"top_logprobs": None}, 0),
                                            ({"top_logprobs": 5}, 5)])  # fmt: skip
def test_the_chosen_token_always_has_one_and_others_when_asked_for(
    live: Any, tiny: Any, http: httpx.Client, top: dict[str, Any], count: int
) -> None:
    """B35."""
    url = live(tiny("flat", probabilities={"a": 0.5, "b": 0.25, "c": 0.125, "d": 0.0625, "e": 0.0625}))
    body = {"logprobs": True, "max_tokens": 3, **top}
    content = ask(http, url, **body).json()["choices"][0]["logprobs"]["content"]
    assert streamed(ask(http, url, stream=True, **body)) == content
    assert len(content) == 3
    for entry in content:
        assert (entry["token"], entry["bytes"]) == ("a", [97])
        assert entry["logprob"] == pytest.approx(math.log(0.5), abs=1e-5)
        assert len(entry["top_logprobs"]) == count
    if count:
        tops = content[0]["top_logprobs"]
        assert [other["token"] for other in tops] == list("abcde")
        assert tops[1] == {"token": "b", "bytes": [98], "logprob": pytest.approx(math.log(0.25), abs=1e-5)}


def test_there_are_none_unless_asked_for(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script"))
    for body in ({}, {"logprobs": False}, {"logprobs": None}):
        assert ask(http, url, **body).json()["choices"][0]["logprobs"] is None
        assert streamed(ask(http, url, stream=True, **body)) == []


def test_bytes_of_tokens_that_are_no_characters_add_up_to_the_text(live: Any, tiny: Any, http: httpx.Client) -> None:
    text = "caf\u00e9 \U0001f389!"
    url = live(tiny("bytes", text=text))
    choice = ask(http, url, logprobs=True, top_logprobs=1).json()["choices"][0]
    content = choice["logprobs"]["content"]
    assert choice["message"]["content"] == text
    assert bytes(byte for entry in content for byte in entry["bytes"]).decode() == text
    assert [entry["token"] for entry in content][:6] == ["c", "a", "f", "\\xc3", "\\xa9", " "]
    assert all(entry["top_logprobs"][0]["token"] == entry["token"] for entry in content)


def test_control_tokens_among_the_likeliest_are_told_by_their_text(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("flat", probabilities={"a": 0.6, "</s>": 0.4}))
    content = ask(http, url, logprobs=True, top_logprobs=2, max_tokens=1).json()["choices"][0]["logprobs"]["content"]
    assert [other["token"] for other in content[0]["top_logprobs"]] == ["a", "</s>"]


def test_every_choice_has_its_own(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("flat", probabilities={"a": 0.5, "b": 0.5}))
    body = ask(http, url, logprobs=True, n=3, seed=1, temperature=1, max_tokens=6).json()
    for choice in body["choices"]:
        tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert "".join(tokens) == choice["message"]["content"]


@pytest.mark.parametrize(("stop", "tokens"), [("O P Q", []), (" Q", ["O", " P"]), ("P X", ["O", " P", " Q", " R"]),
                                              ("P Q", ["O", " P"])])  # fmt: skip
def test_tokens_of_a_stop_string_are_not_told(
    live: Any, tiny: Any, http: httpx.Client, stop: str, tokens: list[str]
) -> None:
    """B03: nor those that might begin one, before it is clear; one that has text before the stop string is told."""
    url = live(tiny("script"))
    content = ask(http, url, logprobs=True, stop=stop).json()["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == tokens
    assert streamed(ask(http, url, logprobs=True, stop=stop, stream=True)) == content

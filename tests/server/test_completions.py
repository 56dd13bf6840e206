"""Text completions through HTTP: prompts of every form, echo, log probabilities, the best of several, infill."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest

PATH = "/v1/completions"
GO = "<|go|>"
EVEN = {"a": 0.5, "b": 0.25, "c": 0.25}

Say = Callable[..., httpx.Response]


@pytest.fixture
def complete(live: Any, tiny: Any, http: httpx.Client) -> Callable[..., Say]:
    """``complete(kind, **package)``: a server of one package, asked by ``say(**body)``; greedy."""

    def serve(kind: str = "script", **package: Any) -> Say:
        url = live(tiny(kind, **package))
        return lambda **body: http.post(url + PATH, json={"prompt": GO, "temperature": 0, **body})

    return serve


def choices(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    return response.json()["choices"]


def texts(response: httpx.Response) -> list[str]:
    return [choice["text"] for choice in choices(response)]


def error(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    return response.json()["error"]


def streamed(response: httpx.Response) -> tuple[dict[int, str], dict[int, list[str]], dict[str, Any] | None]:
    """Texts and finish reasons by choice, and the usage."""
    frames = [frame.removeprefix("data: ") for frame in response.text.split("\n\n") if frame]
    assert frames[-1] == "[DONE]"
    joined: dict[int, str] = {}
    reasons: dict[int, list[str]] = {}
    usage = None
    for frame in frames[:-1]:
        chunk = json.loads(frame)
        usage = chunk.get("usage")
        for choice in chunk["choices"]:
            index = choice["index"]
            assert not reasons.get(index)
            joined[index] = joined.get(index, "") + choice["text"]
            if choice["finish_reason"] is not None:
                reasons.setdefault(index, []).append(choice["finish_reason"])
    return joined, reasons, usage


def test_an_answer_has_every_field_of_the_interface(complete: Any) -> None:
    body = complete(name="it")().json()
    assert (body["object"], body["model"]) == ("text_completion", "it")
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [{"text": "O P Q R", "index": 0, "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"]["total_tokens"] == 6


def test_prompts_are_texts_or_ids_one_or_several(complete: Any, tiny: Any) -> None:
    say = complete("kv", context_length=64)
    package = tiny("kv", context_length=64)
    prompts = ["abc", "de"]
    ids = [package.vocabulary.encode(prompt) for prompt in prompts]
    expected = [package.answer_text(tokens, 8) for tokens in ids]
    assert texts(say(prompt=prompts[0], max_tokens=8)) == expected[:1]
    assert texts(say(prompt=ids[0], max_tokens=8)) == expected[:1]
    for several in (prompts, ids, [prompts[0], ids[1]]):
        body = say(prompt=several, max_tokens=8)
        assert texts(body) == expected
        assert [choice["index"] for choice in choices(body)] == [0, 1]
        assert body.json()["usage"]["prompt_tokens"] == 5
        assert body.json()["usage"]["completion_tokens"] == 16
        joined, reasons, usage = streamed(
            say(prompt=several, max_tokens=8, stream=True, stream_options={"include_usage": True})
        )
        assert [joined[0], joined[1]] == expected
        assert reasons == {0: ["length"], 1: ["length"]}
        assert usage is not None
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (5, 16)


def test_choices_of_several_prompts_are_numbered_prompt_by_prompt(complete: Any) -> None:
    say = complete("flat", probabilities=EVEN)
    asked = {"prompt": ["x", "y"], "n": 3, "temperature": 1, "seed": 3, "max_tokens": 12, "echo": True}
    body = choices(say(**asked))
    assert [choice["index"] for choice in body] == list(range(6))
    assert [choice["text"][0] for choice in body] == list("xxxyyy")
    assert len({choice["text"][1:] for choice in body[:3]}) == 3
    joined, reasons, _ = streamed(say(**asked, stream=True))
    assert [joined[index] for index in range(6)] == [choice["text"] for choice in body]
    assert sorted(reasons) == list(range(6))


def test_without_a_limit_an_answer_goes_up_to_the_context(complete: Any) -> None:
    say = complete("kv", context_length=40)
    assert say(prompt="abc").json()["usage"]["completion_tokens"] == 37
    assert say(prompt="abc", max_tokens=3).json()["usage"]["completion_tokens"] == 3
    for limit in (0, -1, "x"):
        assert error(say(prompt="abc", max_tokens=limit))["param"] == "max_tokens"


@pytest.mark.parametrize(("count", "likeliest"), [(0, {}), (2, {"a": 0.5, "b": 0.25})])
def test_logprobs_have_the_chosen_token_and_so_many_others(complete: Any, count: int, likeliest: Any) -> None:
    """B35: 0 asks for the chosen tokens alone."""
    say = complete("flat", probabilities=EVEN)
    (choice,) = choices(say(prompt="xy", logprobs=count, max_tokens=2))
    scores = choice["logprobs"]
    assert scores["tokens"] == ["a", "a"]
    assert scores["token_logprobs"] == pytest.approx([math.log(0.5)] * 2, abs=1e-5)
    assert scores["text_offset"] == [0, 1]
    for top in scores["top_logprobs"]:
        assert top == pytest.approx({token: math.log(p) for token, p in (likeliest or {"a": 0.5}).items()}, abs=1e-5)
    assert choices(say(prompt="xy", max_tokens=2))[0]["logprobs"] is None


def test_streamed_logprobs_are_the_same(complete: Any) -> None:
    say = complete("bytes", text="\u00e9\U0001f389!")
    (choice,) = choices(say(logprobs=1))
    frames = say(logprobs=1, stream=True).text.split("\n\n")[:-2]
    parts = [c["logprobs"] for f in frames for c in json.loads(f.removeprefix("data: "))["choices"] if c["logprobs"]]
    assert {name: [one for part in parts for one in part[name]] for name in choice["logprobs"]} == choice["logprobs"]
    assert choice["logprobs"]["tokens"][:2] == ["bytes:\\xc3", "bytes:\\xa9"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 1, 1, 1, 2]


def test_echo_shows_and_scores_the_prompt(complete: Any) -> None:
    say = complete("flat", probabilities={**EVEN, "x": 0.0})
    (choice,) = choices(say(prompt="xab", echo=True, logprobs=1, max_tokens=2))
    assert choice["text"] == "xabaa"
    scores = choice["logprobs"]
    assert scores["tokens"] == list("xabaa")
    assert scores["text_offset"] == [0, 1, 2, 3, 4]
    assert scores["token_logprobs"][0] is None
    assert scores["top_logprobs"][0] is None
    expected = [math.log(p) for p in (0.5, 0.25, 0.5, 0.5)]
    assert scores["token_logprobs"][1:] == pytest.approx(expected, abs=1e-5)
    assert set(scores["top_logprobs"][2]) == {"a", "b"}
    (alone,) = choices(say(prompt="xab", echo=True, logprobs=1, max_tokens=0))
    assert alone["text"] == "xab"
    assert alone["logprobs"]["token_logprobs"][1:] == pytest.approx(expected[:2], abs=1e-5)
    (bare,) = choices(say(prompt="xab", echo=True, max_tokens=0))
    assert (bare["text"], bare["logprobs"]) == ("xab", None)
    assert streamed(say(prompt="xab", echo=True, max_tokens=2, stream=True))[0] == {0: "xabaa"}


def test_a_begin_token_that_the_prompt_does_not_show_takes_no_room(live: Any, tiny: Any, http: httpx.Client) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["tokenizer"]["bos"] = "<s>"

    url = live(tiny("flat", probabilities=EVEN, add_bos=True, edit=edit))
    for prompt, offsets in (("ab", [0, 0, 1, 2]), ("<s>ab", [0, 3, 4, 5])):
        body = {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 1, "temperature": 0}
        (choice,) = choices(http.post(url + PATH, json=body))
        assert choice["logprobs"]["tokens"] == ["<s>", "a", "b", "a"]
        assert choice["logprobs"]["text_offset"] == offsets
        assert choice["text"] == f"{prompt}a"


def test_the_best_of_several_are_those_with_the_highest_logprob_per_token(complete: Any) -> None:
    say = complete("flat", probabilities={"a": 0.6, "b": 0.3, "c": 0.1})
    asked = {"prompt": "x", "temperature": 1, "seed": 11, "max_tokens": 4}
    every = choices(say(**asked, n=8, logprobs=0))
    ranked = sorted(every, key=lambda choice: -sum(choice["logprobs"]["token_logprobs"]))
    best = say(**asked, n=2, best_of=8)
    assert texts(best) == [choice["text"] for choice in ranked[:2]]
    assert [choice["index"] for choice in choices(best)] == [0, 1]
    assert choices(best)[0]["logprobs"] is None
    assert best.json()["usage"]["completion_tokens"] == 32
    assert texts(say(**asked, n=2, best_of=2)) == texts(say(**asked, n=2))


def test_a_suffix_asks_for_what_stands_between(complete: Any) -> None:
    infill = {"prefix": "<|im_start|>", "suffix": "<s>", "middle": "<|go|>"}
    say = complete(edit=lambda metadata: metadata["tokenizer"].update(infill=infill))
    body = say(prompt="a", suffix="b")
    assert texts(body) == ["O P Q R"]
    assert body.json()["usage"]["prompt_tokens"] == 5
    assert texts(say(prompt=["a", "c"], suffix="b")) == ["O P Q R"] * 2
    assert error(say(prompt=[1, 2], suffix="b"))["param"] == "suffix"
    assert error(say(prompt="a", suffix="b", echo=True))["param"] == "echo"
    assert error(complete()(prompt="a", suffix="b"))["param"] == "suffix"


def test_stops_and_cut_characters(complete: Any) -> None:
    """B02, B03."""
    say = complete()
    assert (texts(say(stop="P Q")), choices(say(stop="P Q"))[0]["finish_reason"]) == (["O "], "stop")
    emoji = complete("bytes", text="\U0001f389")
    (choice,) = choices(emoji(max_tokens=2))
    assert choice["finish_reason"] == "length"
    assert streamed(emoji(max_tokens=2, stream=True))[0] == {0: choice["text"]}
    assert texts(emoji()) == ["\U0001f389"]


def test_one_prompt_that_cannot_be_refuses_all_of_them(complete: Any) -> None:
    say = complete("kv", context_length=32)
    assert error(say(prompt=["a", "b" * 40]))["code"] == "context_length_exceeded"
    assert len(choices(say(prompt=["a", "b"], max_tokens=2))) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", 3]}, "prompt[1]"),
        ({"prompt": [3, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [999_999]}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"echo": "yes"}, "echo"),
        ({"echo": True, "logprobs": 1, "stream": True}, "echo"),
        ({"logprobs": True}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 100}, "best_of"),
        ({"suffix": 3}, "suffix"),
        ({"stream": "true"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 300}, "max_tokens"),
        ({"user": 3}, "user"),
    ],
)
def test_what_cannot_be_is_a_400_that_names_the_field(complete: Any, body: dict[str, Any], param: str) -> None:
    """B43."""
    say = complete()
    found = error(say(**body))
    assert found["param"] == param or param in found["message"]
    assert texts(say()) == ["O P Q R"]


def test_a_number_of_alternatives_that_is_too_large_is_named_as_the_client_named_it(complete: Any) -> None:
    found = error(complete()(logprobs=21))
    assert found["param"] == "logprobs"
    assert "top_logprobs" not in found["message"]


def test_a_client_that_leaves_frees_every_place(serving: Any, tiny: Any, http: httpx.Client) -> None:
    """B30, with several prompts of one request."""
    server = serving(tiny("kv", context_length=60_000), load={"max_batch": 2, "memory": 128 << 20})
    body = {"prompt": ["a", "b", "c"], "temperature": 0, "max_tokens": 20_000, "stream": True}
    with http.stream("POST", server.url + PATH, json=body) as response:
        lines = response.iter_lines()
        for _ in range(4):
            next(lines)
    answer = http.post(server.url + PATH, json={"prompt": "a", "temperature": 0, "max_tokens": 2})
    assert answer.status_code == 200
    (model,) = server.running.app.state.host.stats()
    assert (model["engine"]["requests"]["cancelled"], model["engine"]["running"], model["requests"]) == (3, 0, 0)

"""Chat completions through HTTP: options, limits, ends, conversations, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

USER = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"
TAIL = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

Chat = Callable[..., httpx.Response]


@pytest.fixture
def chat(live: Any, tiny: Any, http: httpx.Client) -> Callable[..., Chat]:
    """``chat(kind, **package)``: a server of one package, asked by ``say(messages=..., **body)``; greedy."""

    def serve(kind: str = "script", *, config: dict[str, Any] | None = None, **package: Any) -> Chat:
        url = live(tiny(kind, **package), **(config or {}))

        def say(**body: Any) -> httpx.Response:
            return http.post(url + PATH, json={"messages": USER, "temperature": 0, **body})

        return say

    return serve


def text(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def outcome(response: httpx.Response) -> tuple[str, str, int]:
    """Text, finish reason, and tokens of the answer."""
    body = response.json()
    return text(response), body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]


def error(response: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert response.status_code == status, response.text
    return response.json()["error"]


def test_an_answer_has_every_field_of_the_interface(chat: Any) -> None:
    body = chat(name="it")(metadata={"a": "b"}).json()
    assert (body["object"], body["model"], body["service_tier"]) == ("chat.completion", "it", "default")
    assert body["id"].startswith("chatcmpl-")
    assert body["system_fingerprint"].startswith("fp_")
    assert body["metadata"] == {"a": "b"}
    (choice,) = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "O P Q R", "refusal": None}
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "stop", None)
    assert body["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"max_tokens": 1}, 1),
        ({"max_tokens": 2}, 2),
        ({"max_tokens": 3}, 3),
        ({"max_completion_tokens": 1}, 1),
        ({"max_completion_tokens": 3}, 3),
        ({"max_completion_tokens": 2, "max_tokens": 3}, 2),
        ({"max_completion_tokens": 3, "max_tokens": 1}, 3),
        ({"max_tokens": None, "max_completion_tokens": None}, 54),  # up to the context of 64
    ],
)
def test_limits_are_exact_and_the_newer_field_wins(chat: Any, limits: dict[str, Any], count: int) -> None:
    say = chat("kv", context_length=64)
    response = say(**limits)
    assert outcome(response)[1:] == ("length", count)


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, "3", 1.5, True])
def test_limits_that_are_none_are_refused_by_the_name_that_was_used(chat: Any, field: str, value: Any) -> None:
    found = error(chat()(**{field: value}))
    assert found["param"] == field
    assert field in found["message"]


def test_prompts_up_to_the_context_fit_and_longer_ones_are_refused_with_both_numbers(chat: Any) -> None:
    say = chat("kv", context_length=40)

    def messages(length: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": "x" * (length - 8)}]  # the template adds 8 tokens

    assert say(messages=messages(39), max_tokens=1).json()["usage"]["prompt_tokens"] == 39
    for length in (40, 41, 400):
        found = error(say(messages=messages(length)))
        assert found["code"] == "context_length_exceeded"
        assert str(length) in found["message"]
        assert "40" in found["message"]
    found = error(say(messages=messages(30), max_tokens=11))
    assert "30" in found["message"]
    assert "11" in found["message"]
    assert outcome(say(messages=messages(30)))[1:] == ("length", 10)


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("O P Q", ""),
        (["O P Q"], ""),
        (["P Q"], "O "),
        (["\nObservation", "never", "nor this", "nor that", "or R", " R"], "O P Q"),
        ([], "O P Q R"),
        (None, "O P Q R"),
    ],
)
def test_stop_strings_end_an_answer_and_are_no_part_of_it(chat: Any, stop: Any, expected: str) -> None:
    content, reason, _ = outcome(chat()(stop=stop))
    assert (content, reason) == (expected, "stop")


@pytest.mark.parametrize("end", ["</s>", "<|im_end|>"])
def test_stops_of_the_request_add_to_every_declared_end_token(chat: Any, end: str) -> None:
    say = chat(script=["O", " P"], end=end, eos=["<|im_end|>", "</s>"])
    for stop in (None, ["\nObservation"]):
        assert outcome(say(stop=stop)) == ("O P", "stop", 3)


def test_stops_of_the_request_add_to_the_stop_strings_that_the_package_declares(chat: Any) -> None:
    """B11."""
    say = chat(script=["O", " P", "\nUser", " Q"], generation={"defaults": {"stop": ["\nUser"]}})
    for stop in (None, "\nObservation", []):
        assert outcome(say(stop=stop)) == ("O P", "stop", 3)
    assert outcome(say(stop=" P")) == ("O", "stop", 2)


def test_the_packages_defaults_hold_until_the_request_says_otherwise(chat: Any) -> None:
    """B18: silence is the package's value; 0 and 1.0 are the client's."""
    kinds = {"a": 0.4, "b": 0.35, "c": 0.25}
    say = chat("flat", probabilities=kinds, generation={"defaults": {"temperature": 1.0, "top_k": 1}})

    def answer(**body: Any) -> str:
        return text(say(max_tokens=32, **{"temperature": None, **body}))

    assert answer() == "a" * 32
    free = {answer(top_k=0, seed=seed) for seed in range(3)}
    assert len(free) == 3
    assert set("".join(free)) == {"a", "b", "c"}
    assert answer(top_k=0, seed=1) == answer(top_k=0, seed=1)
    assert answer(top_k=0, temperature=0) == "a" * 32
    cold = chat("flat", probabilities=kinds, generation={"defaults": {"temperature": 0}})
    assert text(cold(max_tokens=32, temperature=None)) == "a" * 32
    assert set(text(cold(max_tokens=32, temperature=1.0, seed=3))) == {"a", "b", "c"}


@pytest.mark.parametrize(
    "options",
    [
        {"min_p": 0.9},
        {"top_k": 1},
        {"regex": "bbb"},
        {"choices": ["bbb"]},
        {"grammar": 'start: "bbb"'},
        {"banned_token_ids": [-1]},
        {"logit_bias": {"-1": 5}},
        {"repetition_penalty": -1},
        {"min_new_tokens": 9, "max_tokens": 3},
        {"ignore_eos": "yes"},
        {"parameters": {"nothing": 1}},
    ],
)
def test_options_of_our_own_have_their_effect_or_are_refused(chat: Any, options: dict[str, Any]) -> None:
    say = chat("flat", probabilities={"a": 0.5, "b": 0.3, "</s>": 0.2})
    response = say(**{"temperature": 1, "max_tokens": 3, **options})
    first = next(iter(options))
    if first in ("min_p", "top_k"):
        assert text(response) == "aaa"
    elif first in ("regex", "choices", "grammar"):
        assert text(response) == "bbb"
    else:
        assert error(response)["param"].startswith("nothing" if first == "parameters" else first)


def test_biases_and_penalties_change_the_answer(chat: Any, tiny: Any) -> None:
    say = chat("flat", probabilities={"a": 0.5, "b": 0.3, "c": 0.2})
    ids = tiny("flat").vocabulary.ids
    assert text(say(max_tokens=3)) == "aaa"
    assert text(say(max_tokens=3, logit_bias={str(ids["a"]): -100})) == "bbb"
    assert text(say(max_tokens=3, frequency_penalty=0.6)) == "aba"
    assert text(say(max_tokens=3, presence_penalty=2)) == "abc"


def test_several_choices_differ_and_are_numbered(chat: Any) -> None:
    body = chat("flat")(n=3, seed=5, temperature=1, max_tokens=8).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in body["choices"]}) == 3
    assert body["usage"]["completion_tokens"] == 24


def test_all_text_parts_count_in_order(chat: Any) -> None:
    """B41, with a model that only counts: the same tokens, however the text is written."""
    say = chat()

    def tokens(*contents: Any) -> int:
        roles = ("system", "user")
        messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
        response = say(messages=messages)
        assert text(response) == "O P Q R"
        return response.json()["usage"]["prompt_tokens"]

    def parts(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": one} for one in texts]

    assert tokens(parts("ab", "cd"), parts("ef", "gh")) == tokens("ab\ncd", "ef\ngh")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    for part, what in ((image, "image"), (sound, "audio")):
        found = error(say(messages=[{"role": "user", "content": [*parts("x"), part]}]))
        assert what in found["message"]
        assert found["param"] == "messages[0].content[1]"
    found = error(say(messages=[{"role": "user", "content": []}]))
    assert found["param"] == "messages[0].content"


def test_developers_are_heard_as_the_system(chat: Any) -> None:
    strict = "{% for m in messages %}{% if m.role not in ['system', 'user'] %}{{ raise_exception('who?') }}{% endif %}"
    template = strict + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" + TAIL
    say = chat(chat_template=template)
    same = [say(messages=[{"role": role, "content": "be"}, *USER]) for role in ("developer", "system")]
    assert [text(response) for response in same] == ["O P Q R"] * 2
    assert same[0].json()["usage"]["prompt_tokens"] == same[1].json()["usage"]["prompt_tokens"]


def test_earlier_calls_and_refusals_belong_to_a_conversation(chat: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "ok"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": None, "refusal": "no"},
        *USER,
    ]
    assert text(chat()(messages=messages)) == "O P Q R"


def test_a_template_that_raises_is_a_400_with_its_own_message(chat: Any) -> None:
    """B48."""
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    ) + TAIL
    say = chat(chat_template=template)
    found = error(say(messages=[{"role": "system", "content": "s"}, *USER]))
    assert "System role not supported" in found["message"]
    assert found["code"] == "template_error"
    assert "Conversation roles must alternate" in error(say(messages=USER * 2))["message"]
    assert text(say()) == "O P Q R"


def test_without_a_template_chat_is_a_400_and_completions_work(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny("script", chat_template=None))
    found = error(http.post(url + PATH, json={"messages": USER}))
    assert "no chat template" in found["message"]
    completion = http.post(f"{url}/v1/completions", json={"prompt": "<|go|>", "temperature": 0}).json()
    assert completion["choices"][0]["text"] == "O P Q R"


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_a_conversation_begins_with_one_bos_on_every_path(
    live: Any, tiny: Any, http: Any, add_bos: bool, written: bool
) -> None:
    """B50: whoever adds it, template or tokenizer. A raw prompt has what it says, and one in front if it is wanted."""
    body = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    template = ("{{ bos_token }}" if written else "") + body + TAIL

    def edit(metadata: dict[str, Any]) -> None:
        metadata["tokenizer"]["bos"] = "<s>"

    url = live(tiny("script", chat_template=template, add_bos=add_bos, edit=edit))
    used = http.post(url + PATH, json={"messages": USER, "temperature": 0}).json()["usage"]["prompt_tokens"]
    assert used == 10 + (add_bos or written)

    def raw(prompt: str) -> int:
        return http.post(f"{url}/v1/completions", json={"prompt": prompt}).json()["usage"]["prompt_tokens"]

    assert (raw("<|go|>"), raw("<s><|go|>")) == (1 + add_bos, 2)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "usr", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{**USER[0], "function_call": {"name": "f", "arguments": ""}}]}, "messages[0].function_call"),
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 1.5}, "n"),
        ({"seed": "x"}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"presence_penalty": "x"}, "presence_penalty"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"model": 3}, "model"),
        ({"user": 3}, "user"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"priority": "urgent"}, "priority"),
        ({"priority": "low", "service_tier": "flex"}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"store": True}, "store"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"audio": {"voice": "x", "format": "wav"}}, "audio"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"functions": []}, "functions"),
        ({"function_call": "none"}, "function_call"),
        ({"verbosity": "low"}, "verbosity"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"reasoning_effort": "lots"}, "reasoning_effort"),
        ({"reasoning_budget": 4}, "reasoning_budget"),
        ({"chat_template_kwargs": {"nothing": 1}}, "chat_template_kwargs.nothing"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/$defs/no"}}}},
            "response_format",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"unevaluatedItems": False}}}},
            "response_format",
        ),
        ({"regex": "("}, "regex"),
        ({"regex": "(?<=a)b"}, "regex"),
        ({"grammar": "start: ("}, "grammar"),
        ({"choices": []}, "choices"),
        ({"choices": ["a"], "regex": "a"}, "regex"),
    ],
)
def test_what_cannot_be_is_a_400_that_names_the_field(chat: Any, body: dict[str, Any], param: str) -> None:
    """B43, B54: always before the first token, also where a stream was asked for."""
    say = chat()
    for stream in (False, True):
        streamed = {"stream": True} if stream and "stream" not in body and "stream_options" not in body else {}
        found = error(say(**{**body, **streamed}))
        assert found["type"] == "invalid_request_error"
        assert (found["param"] or "").split(" ")[0] == param or param in found["message"]
    assert text(say()) == "O P Q R"


@pytest.mark.parametrize("body", [b"", b"{", b'{"messages": [', b"[]", b'"x"', b"\xff\xfe", b'{"temperature": NaN}'])
def test_bodies_that_are_no_json_object_are_a_400(live: Any, tiny: Any, http: Any, body: bytes) -> None:
    url = live(tiny("script"))
    response = http.post(url + PATH, content=body, headers={"content-type": "application/json"})
    assert error(response)["type"] == "invalid_request_error"
    assert text(http.post(url + PATH, json={"messages": USER, "temperature": 0})) == "O P Q R"


@pytest.mark.parametrize(
    ("sent", "tier"),
    [
        ({"service_tier": "auto"}, "default"),
        ({"service_tier": "flex"}, "flex"),
        ({"service_tier": "priority"}, "priority"),
        ({"priority": "low"}, "flex"),
        ({"priority": "high"}, "priority"),
    ],
)
def test_priorities_are_service_tiers(chat: Any, sent: dict[str, str], tier: str) -> None:
    assert chat()(**sent).json()["service_tier"] == tier


def test_fields_that_change_no_answer_and_unknown_ones_are_skipped(chat: Any) -> None:
    """Decision 3."""
    noted = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "store": False, "modalities": ["text"]}
    noted["verbosity"] = "medium"
    assert text(chat()(**noted, nobody_knows_this=1, metadata=None, response_format={"type": "text"})) == "O P Q R"


def test_models_by_name_by_no_name_and_by_a_wrong_one(live: Any, tiny: Any, http: Any) -> None:
    """B44."""
    url = live(tiny("script", name="first"), tiny("table", name="second"))

    def say(**body: Any) -> httpx.Response:
        return http.post(url + PATH, json={"messages": USER, "temperature": 0, "max_tokens": 1, **body})

    answers = [say(), say(model=""), say(model=None), say(model="first"), say(model="second")]
    assert [answer.json()["model"] for answer in answers] == ["first"] * 4 + ["second"]
    found = error(say(model="frist"), 404)
    assert (found["code"], found["param"]) == ("model_not_found", "model")
    assert "first" in found["message"]


def test_tokens_of_a_shared_prefix_are_reported_as_cached(chat: Any) -> None:
    say = chat("kv", context_length=256)
    messages = [{"role": "user", "content": "abcdefghij" * 6}]
    first, second = (say(messages=messages, max_tokens=4).json() for _ in range(2))
    assert first["choices"] == second["choices"]
    details = [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in (first, second)]
    assert details[0] == 0
    assert 48 <= details[1] < second["usage"]["prompt_tokens"]


def test_accepted_drafts_are_predictions_that_were_right(live: Any, tiny: Any, http: Any) -> None:
    script = list("abcdabcdabcdabcdabcdabcd")
    url = live(tiny("script", script=script), load={"draft": "lookup"})
    body = http.post(url + PATH, json={"messages": USER, "temperature": 0}).json()
    assert body["choices"][0]["message"]["content"] == "".join(script)
    details = body["usage"]["completion_tokens_details"]
    assert details.keys() <= {"reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"}


def test_an_answer_of_json_is_json(chat: Any) -> None:
    """Every token is as likely as another, so only the schema can make the answer fit."""
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    answer = text(chat("flat")(response_format=format, max_tokens=80, seed=1, temperature=1))
    assert json.loads(answer) in ({"a": 1}, {"a": 2})

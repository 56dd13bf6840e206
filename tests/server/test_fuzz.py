"""Bodies nobody would send, made from the OpenAPI document: no answer is a 500, and nobody else notices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from genai_pipeline.server.openai.fields import SHARED
from genai_pipeline.server.openapi_bodies import BODIES, FORMS, OPTIONS
from genai_pipeline.testing.media import write_embedder
from genai_pipeline.testing.signals import tone, wav_bytes
from genai_pipeline.testing.voices import write_speaker, write_transcriber

USER = [{"role": "user", "content": "hi"}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
TEMPLATE = (
    "{% for tool in tools or [] %}<|im_start|>tool {{ tool.function.name }}<|im_end|>\n{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{% for call in message.tool_calls %}{{ call.function.name }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# One good body for each path, as rich as it can be: fuzzing changes something in it.
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "it",
        "messages": [
            {"role": "system", "content": "x"},
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "tools": [TOOL],
        "tool_choice": "auto",
        "temperature": 0.5,
        "stop": ["x"],
        "logit_bias": {"5": 1},
        "stream_options": None,
        "response_format": {"type": "text"},
        "max_tokens": 4,
        "n": 1,
        "logprobs": True,
        "metadata": {"a": "b"},
    },
    "/v1/completions": {"model": "it", "prompt": ["a", "b"], "max_tokens": 3, "logprobs": 1, "stop": "x", "n": 2},
    "/v1/responses": {
        "model": "it",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "b"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ],
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}},
        "reasoning": {"summary": "auto"},
        "include": ["message.output_text.logprobs"],
        "metadata": {"a": "b"},
        "max_output_tokens": 4,
        "stream_options": {"include_obfuscation": False},
    },
    "/v1/messages": {
        "model": "it",
        "max_tokens": 4,
        "system": [{"type": "text", "text": "x"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]},
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "disabled"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
    },
    "/v1/messages/count_tokens": {"messages": USER, "system": "x", "tools": [{"name": "f", "input_schema": SCHEMA}]},
    "/v1/sessions": {"model": "it", "messages": [{"role": "system", "content": "x"}]},
    "/v1/sessions/{id}/messages": {"content": "a", "role": "user", "max_tokens": 3, "temperature": 0},
    "/v1/sessions/{id}/fork": {},
    "/v1/sessions/{id}/rewind": {"turn": 0},
    "/v1/embeddings": {"model": "tiny-embedder", "input": ["a", "200Hz"], "encoding_format": "base64", "dimensions": 3},
    "/v1/audio/speech": {
        "model": "tiny-speaker",
        "input": "abc",
        "voice": "default",
        "response_format": "pcm",
        "speed": 2,
        "seed": 1,
        "parameters": {},
    },
    "/tokenize": {"model": "it", "messages": USER},
    "/detokenize": {"model": "it", "tokens": [1, 2, 3]},
}
QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]

numbers = st.one_of(
    st.integers(-3, 300), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.one_of(st.sampled_from(["", "auto", "text", "function", "it", "\x00", "<|im_end|>"]), st.text(max_size=12))
leaves = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["type", "text", "content", "role", "name", "function", "schema"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


def steady(examples: int) -> Callable[[Any], Any]:
    """The same examples in every run."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=QUIET,
    )


class Target:
    """A server, and what all of its answers must be like."""

    def __init__(self, url: str, http: httpx.Client) -> None:
        self.url = url
        self._http = http
        self.session = self.send("POST", "/v1/sessions", json={}).json()["id"]
        self.seen: dict[int, int] = {}

    def send(self, method: str, path: str, **given: Any) -> httpx.Response:
        return self._http.request(method, self.url + path, **given)

    def check(self, method: str, path: str, **given: Any) -> httpx.Response:
        """Send something; whatever it is, the answer is a good one or an error that says why."""
        answer = self.send(method, path, **given)
        self.seen[answer.status_code] = self.seen.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, (method, path, given, answer.text)
        if answer.status_code >= 400:
            error = answer.json()["error"]
            assert error["message"], (method, path, given)
            assert "/work" not in error["message"]
            assert "Traceback" not in error["message"]
        return answer

    def path(self, template: str) -> str:
        return template.replace("{id}", self.session)


@pytest.fixture
def target(live: Any, tiny: Any, http: httpx.Client, tmp_path: Path) -> Target:
    package = tiny(
        "script",
        name="it",
        chat_template=TEMPLATE,
        edit=lambda metadata: metadata.update(tools={"format": "json_tagged"}),
    )
    others = (write_embedder(tmp_path / "embedder"), write_speaker(tmp_path / "speaker"))
    hearing = write_transcriber(tmp_path / "transcriber")
    return Target(live(package, *others, hearing), http)


def still_well(target: Target) -> None:
    """The server answers as if nothing had been, and nothing is left behind."""
    body = {"messages": USER, "temperature": 0}
    answer = target.send("POST", "/v1/chat/completions", json=body)
    assert answer.json()["choices"][0]["message"]["content"] == "O P Q R"
    for model in target.send("GET", "/admin/status").json()["models"]:
        if "engine" in model:
            assert (model["engine"]["running"], model["engine"]["queue"]) == (0, 0)
            assert model["engine"].get("pages", {}).get("arena", {}).get("used", 0) == 0


def test_the_document_names_every_route_and_option(target: Target) -> None:
    document = target.send("GET", "/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert set(SHARED) == set(OPTIONS)
    assert {*BODIES, *FORMS} <= set(document["paths"])
    assert set(GOOD) == set(BODIES)
    for path, body in GOOD.items():
        answer = target.send("POST", target.path(path), json=body)
        assert answer.status_code == 200, (path, answer.text)
        assert set(body) <= set(BODIES[path]["properties"]), path
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path


def test_bodies_made_from_the_document(target: Target) -> None:
    schema = schemathesis.openapi.from_dict(target.send("GET", "/openapi.json").json())
    for found in schema.get_all_operations():
        operation = found.ok()
        modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if operation.body else [])]
        for mode in modes:

            @steady(5)
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: Any) -> None:
                path = case.path
                for name, value in (case.path_parameters or {}).items():
                    path = path.replace(f"{{{name}}}", quote(str(value), safe="") or "-")
                query = {name: value for name, value in (case.query or {}).items() if isinstance(value, str | int)}
                if case.media_type == "multipart/form-data":
                    send_form(target, path, case.body)
                    return
                body = case.body if isinstance(case.body, dict | list | str | int | float | bool | None) else None
                given = {"json": body} if case.method == "POST" else {}
                target.check(case.method, path, params=query, **given)

            send()
    still_well(target)


def send_form(target: Target, path: str, body: Any) -> None:
    """Send the fields of a form, as texts; one called file as a file."""
    given = body if isinstance(body, dict) else {"file": body}
    texts = {name: value if isinstance(value, str) else json.dumps(value, default=str) for name, value in given.items()}
    sound = texts.pop("file", "").encode("utf-8", errors="replace")
    target.check("POST", path, data=texts, files={"file": ("a.wav", sound)})


def test_forms_that_are_none(target: Target) -> None:
    good = {"model": "tiny-transcriber", "response_format": "vtt", "timestamp_granularities[]": "segment"}
    files = {"file": ("a.wav", wav_bytes(tone("600Hz")), "audio/wav")}
    path = "/v1/audio/transcriptions"
    sent = httpx.Request("POST", target.url + path, data=good, files=files)
    content, header = sent.read(), sent.headers["content-type"]
    assert target.check("POST", path, content=content, headers={"content-type": header}).status_code == 200

    @steady(60)
    @given(data=st.data())
    def send(data: Any) -> None:
        place = data.draw(st.integers(0, 600))
        stop = place + data.draw(st.integers(0, 40))
        changed = content[:place] + data.draw(st.binary(max_size=6)) + content[stop:]
        kind = data.draw(st.sampled_from([header, header, header, "multipart/form-data", "text/plain"]))
        status = target.check("POST", path, content=changed, headers={"content-type": kind}).status_code
        assert status in (200, 400, 404, 415)

    send()
    still_well(target)


def test_good_bodies_with_something_changed(target: Target) -> None:
    for path in GOOD:
        change_bodies(target, path)
    still_well(target)
    assert target.seen[200] > 20
    assert target.seen[400] > 100


def change_bodies(target: Target, path: str) -> None:
    """Send the good body of a path with one field replaced, or something in it changed."""
    names = sorted(BODIES[path]["properties"])

    @steady(25)
    @given(data=st.data())
    def send(data: Any) -> None:
        body = json.loads(json.dumps(GOOD[path]))
        if names and data.draw(st.booleans()):
            body[data.draw(st.sampled_from(names))] = data.draw(values)
        else:
            change(body, data)
        target.check("POST", target.path(path), json=body)

    send()


def change(value: Any, data: Any) -> None:
    """Change, drop or add something anywhere in a body."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        inner = value[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.integers(0, 2)):
            value = inner
            continue
        if data.draw(st.booleans()):
            value[key] = data.draw(values)
        else:
            del value[key]
        return


def test_bodies_that_are_no_json(target: Target) -> None:
    header = {"content-type": "application/json"}

    @steady(60)
    @given(content=st.one_of(st.binary(max_size=40), st.sampled_from([b"[" * 5000, b'{"a":' * 900, b"1e999", b"NaN"])))
    def send(content: bytes) -> None:
        path = sorted(GOOD)[len(content) % len(GOOD)]
        assert target.check("POST", target.path(path), content=content, headers=header).status_code in (200, 400)

    send()
    still_well(target)

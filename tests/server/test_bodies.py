"""Bodies that are wrong: 400 in the interface's own shape, and the server goes on."""

from __future__ import annotations

from typing import Any

import pytest

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
SAID = [{"role": "user", "content": "ab"}]


@pytest.fixture
def post(live: Any, tiny: Any, http: Any) -> Any:
    url = live(tiny(name="it"))
    return lambda content, path=CHAT, **headers: http.post(f"{url}{path}", content=content, headers={**JSON, **headers})


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "invalid_json"),
        (b'{"messages": [', "invalid_json"),
        (b"[1]", "invalid_json"),
        (b"null", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b'{"a": "\xff"}', "invalid_json"),
        (b'{"a": NaN}', "invalid_json"),
        (b'{"a": -Infinity}', "invalid_json"),
        (b'{"a": 1e999}', "invalid_json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "invalid_json"),
        (rb'{"a": "\ud800"}', "invalid_json"),
        (rb'{"\udc00": 1}', "invalid_json"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "json_too_deep"),
        (b'{"a":' * 100_000, "json_too_deep"),
        (b'{"a": [' + b"1," * 300_000 + b"1]}", "json_too_many_items"),
        (b'{"a": "' + b'\\"' * 400_000, "invalid_json"),
    ],
)
def test_what_is_no_json_object_within_bounds_is_a_400(post: Any, content: bytes, code: str) -> None:
    answer = post(content)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert post(b'{"prompt": "ab"}', "/tokenize").status_code == 200


def test_brackets_in_texts_do_not_count(post: Any) -> None:
    assert post(b'{"prompt": "' + b"[" * 200 + b'"}', "/tokenize").json()["count"] == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": SAID, "stream": "true"}, "stream"),
        ({"messages": SAID, "temperature": "hot"}, "temperature"),
        ({"messages": SAID, "max_tokens": "3"}, "max_tokens"),
        ({"messages": SAID, "max_tokens": 0}, "max_tokens"),
        ({"messages": "hello"}, "messages"),
        ({"messages": []}, "messages"),
        ({}, "messages"),
        ({"messages": SAID, "model": 3}, "model"),
    ],
)
def test_a_wrong_type_names_its_field(live: Any, tiny: Any, http: Any, body: dict[str, Any], param: str) -> None:
    url = live(tiny())
    answer = http.post(f"{url}{CHAT}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_body_that_is_not_said_to_be_json_is_refused(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    for headers in ({"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}, {}):
        answer = http.post(f"{url}{CHAT}", content=b'{"messages": []}', headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")


def test_a_body_that_is_too_large_is_a_413_whether_or_not_it_says_so(live: Any, tiny: Any, http: Any) -> None:
    from genai_pipeline.server.limits import Limits

    url = live(tiny(), limits=Limits(body_bytes=10_000))
    content = b'{"prompt": "' + b"a" * 20_000 + b'"}'
    declared = http.post(f"{url}/tokenize", content=content, headers=JSON)
    counted = http.post(f"{url}/tokenize", content=iter([content]), headers=JSON)
    for answer in (declared, counted):
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert http.post(f"{url}/tokenize", json={"prompt": "ab"}).status_code == 200


def test_unknown_fields_are_skipped_and_logged_once(live: Any, tiny: Any, http: Any, caplog: Any) -> None:
    url = live(tiny())
    body = {"prompt": "ab", "x_unheard_of": 1, "model": None}
    for _ in range(3):
        assert http.post(f"{url}/tokenize", json=body).json()["count"] == 2
    assert sum("x_unheard_of" in record.getMessage() for record in caplog.records) == 1


def test_the_shape_of_errors_follows_the_interface(post: Any) -> None:
    answer = post(b"{", "/v1/messages")
    assert answer.json()["type"] == "error"
    assert answer.json()["request_id"] == answer.headers["request-id"]

"""``param`` and message of an error name fields that the body of the request has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from genai_pipeline.testing.media import write_embedder
from genai_pipeline.testing.voices import write_speaker

USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"content": 5}, "content"),
        ({"content": [{"type": "text"}]}, "content[0]"),
        ({"content": [{"type": "zork"}]}, "content[0]"),
        ({"content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "content[0]"),
        ({"content": []}, "content"),
        ({"content": "a", "name": {"a": "\x00"}}, None),
    ],
)
def test_turns_of_sessions(
    live: Any, tiny: Any, http: httpx.Client, message: dict[str, Any], param: str | None
) -> None:
    url = live(tiny("script"))
    id = http.post(f"{url}/v1/sessions", json={}).json()["id"]
    assert http.post(f"{url}/v1/sessions/{id}/messages", json={"content": "hi"}).status_code == 200
    turn = http.post(f"{url}/v1/sessions/{id}/messages", json=message)
    chat = {"session": id, "messages": [{"role": "user", **message}]}
    said = http.post(f"{url}/v1/chat/completions", json=chat)
    if param is None:
        assert (turn.status_code, said.status_code) == (200, 200)
        return
    assert (turn.status_code, said.status_code) == (400, 400)
    assert turn.json()["error"]["param"] == param
    assert "messages[" not in turn.json()["error"]["message"]
    found = said.json()["error"]["param"]
    assert found in (f"messages[0].{param}", param)
    assert "messages[2]" not in said.text


@pytest.mark.parametrize(("path", "write"), [("/v1/audio/speech", write_speaker), ("/v1/embeddings", write_embedder)])
def test_the_input_of_a_task(live: Any, tmp_path: Path, http: httpx.Client, path: str, write: Any) -> None:
    package = write(tmp_path / "package")
    (file,) = (tmp_path / "package").rglob("tokenizer.json")
    tokenizer = json.loads(file.read_text())
    tokenizer["model"]["unk_token"] = "none"  # so that no token stands for what is unknown
    file.write_text(json.dumps(tokenizer))
    answer = http.post(live(package) + path, json={"input": "\U0001f600"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_a_hint_of_messages_says_nothing_that_cannot_be(live: Any, tiny: Any, http: httpx.Client) -> None:
    answer = http.post(f"{live(tiny('script'))}/v1/messages", json={"messages": USER, "max_tokens": 9000})
    assert answer.status_code == 400
    assert "leave" not in answer.json()["error"]["message"]

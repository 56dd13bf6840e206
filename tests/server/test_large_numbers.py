"""Numbers too large for a float: a 400 that names the field and repeats no digits, wherever a number may stand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from genai_pipeline.server.openapi_bodies import OPTIONS
from genai_pipeline.testing.signals import tone, wav_bytes
from genai_pipeline.testing.voices import write_speaker, write_transcriber

HUGE = "1" + "0" * 400
UNREAD = "1" + "0" * 5000  # Python reads no whole number of so many digits
USER = [{"role": "user", "content": "hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": USER},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": USER, "max_tokens": 3},
}
NUMBERS = ("temperature", "top_p", "mirostat_tau", "timeout", "seed", "top_k", "repetition_penalty", "dry_base")


def refused(answer: httpx.Response, param: str) -> None:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error.get("param", param) == param
    assert "0" * 50 not in answer.text


@pytest.mark.parametrize("path", BODIES)
def test_conversations(live: Any, tiny: Any, http: httpx.Client, path: str) -> None:
    url = live(tiny("script"))
    for name in NUMBERS:
        for given in (HUGE, f"-{HUGE}", UNREAD, "1e999", "NaN"):
            text = json.dumps({**BODIES[path], name: "?"}).replace('"?"', given)
            answer = http.post(url + path, content=text, headers={"content-type": "application/json"})
            refused(answer, name if given.endswith(HUGE) else None)  # type: ignore[arg-type]
    bias = json.dumps({**BODIES[path], "logit_bias": {"5": "?"}}).replace('"?"', HUGE)
    refused(http.post(url + path, content=bias, headers={"content-type": "application/json"}), "logit_bias")


def test_the_numbers_are_options_of_the_interfaces() -> None:
    assert set(NUMBERS) <= OPTIONS.keys()


@pytest.mark.parametrize("name", ["temperature", "timeout", "seed", "parameters"])
def test_forms(live: Any, tmp_path: Path, http: httpx.Client, name: str) -> None:
    url = live(write_transcriber(tmp_path / "transcriber"))
    file = {"file": ("a.wav", wav_bytes(tone("600Hz", "soft")))}
    for given in (HUGE, f"-{HUGE}", UNREAD, "1e999", "NaN", "Infinity"):
        answer = http.post(f"{url}/v1/audio/transcriptions", files=file, data={name: given})
        refused(answer, name)


def test_tasks(live: Any, tmp_path: Path, http: httpx.Client) -> None:
    url = live(write_speaker(tmp_path / "speaker"))
    for name in ("speed", "timeout", "seed"):
        text = f'{{"input": "hi", "{name}": {HUGE}}}'
        answer = http.post(f"{url}/v1/audio/speech", content=text, headers={"content-type": "application/json"})
        refused(answer, name)


def test_what_is_counted(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script"))
    session = http.post(f"{url}/v1/sessions", json={}).json()["id"]
    response = http.post(f"{url}/v1/responses", json={"input": "hi"}).json()["id"]
    bodies = {
        "/v1/completions": ("prompt", f'{{"prompt": [{HUGE}]}}'),
        "/detokenize": ("tokens", f'{{"tokens": [-{HUGE}]}}'),
        f"/v1/sessions/{session}/rewind": ("turn", f'{{"turn": {HUGE}}}'),
        "/v1/chat/completions": ("max_tokens", json.dumps({"messages": USER, "max_tokens": 1e300})),
    }
    for path, (param, text) in bodies.items():
        refused(http.post(url + path, content=text, headers={"content-type": "application/json"}), param)
    for limit in (HUGE, f"000001{UNREAD}"):
        refused(http.get(f"{url}/v1/responses/{response}/input_items", params={"limit": limit}), "limit")

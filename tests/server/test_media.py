"""Images and sounds in messages over HTTP: what a client sends is seen and heard; nothing of this machine is read."""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import OpenAI
from PIL import Image

from genai_pipeline.testing.media import write_listener, write_vlm
from genai_pipeline.testing.signals import quarters, tone, wav_bytes

COLOURS = ("red", "green", "blue", "white")
SEEN = "redgreenbluewhite"
OTHERS = ("cyan", "black", "yellow", "magenta")
OTHERS_SEEN = "cyanblackyellowmagenta"
Part = dict[str, Any]


def png(*colours: str) -> bytes:
    file = BytesIO()
    Image.fromarray(quarters(*(colours or COLOURS))).save(file, "PNG")
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def shown(*colours: str) -> Part:
    return {"type": "image_url", "image_url": {"url": data_url(png(*colours))}}


def heard(pitch: str, level: str) -> Part:
    data = base64.b64encode(wav_bytes(tone(pitch, level))).decode()
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def said(*parts: Any) -> list[Part]:
    return [{"role": "user", "content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]}]


@pytest.fixture
def seeing(live: Any, tmp_path: Path) -> str:
    """The address of a server of tiny-vlm."""
    return str(live(write_vlm(tmp_path / "vlm")))


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The paths that anything in this process opens during a test."""
    _OPENED.clear()
    _WATCHED.append(True)
    yield _OPENED
    _WATCHED.clear()


_OPENED: list[str] = []
_WATCHED: list[bool] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if _WATCHED and event == "open":
        _OPENED.append(str(arguments[0]))


sys.addaudithook(_note)  # for as long as the process lives


def test_images_in_every_interface(seeing: str, http: Any) -> None:
    openai = OpenAI(base_url=f"{seeing}/v1", api_key="none")
    chat = openai.chat.completions.create(model="tiny-vlm", messages=said("what?", shown()))  # type: ignore[arg-type]
    assert chat.choices[0].message.content == SEEN
    assert chat.usage is not None
    assert chat.usage.prompt_tokens > 4
    items: Any = [
        {"role": "user", "content": [{"type": "input_image", "image_url": data_url(png()), "detail": "auto"}]}
    ]
    first = openai.responses.create(model="tiny-vlm", input=items)
    assert first.output_text == SEEN
    url = data_url(png(*OTHERS))
    again: Any = [{"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]}]
    both = openai.responses.create(model="tiny-vlm", input=again, previous_response_id=first.id)
    assert both.output_text == SEEN + SEEN + OTHERS_SEEN  # pictures, and the answer about the first one
    anthropic = Anthropic(base_url=seeing, api_key="none")
    source: Any = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png()).decode()}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "what?"}]
    messages: Any = [{"role": "user", "content": content}]
    message = anthropic.messages.create(model="tiny-vlm", max_tokens=20, messages=messages)
    assert message.content[0].text == SEEN  # type: ignore[union-attr]
    counted = anthropic.messages.count_tokens(model="tiny-vlm", messages=messages)
    assert counted.input_tokens == message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def test_sounds_in_chats_and_responses(live: Any, tmp_path: Path) -> None:
    openai = OpenAI(base_url=f"{live(write_listener(tmp_path / 'ear'))}/v1", api_key="none")
    chat = openai.chat.completions.create(
        model="tiny-listener",
        messages=said("what?", heard("600Hz", "soft")),  # type: ignore[arg-type]
    )
    assert chat.choices[0].message.content == "soft600Hz"
    items: Any = [{"role": "user", "content": [heard("1000Hz", "loud")]}]
    assert openai.responses.create(model="tiny-listener", input=items).output_text == "loud1000Hz"


PARTS: list[tuple[Callable[[str], Part], str | None]] = [
    (lambda path: {"type": "image", "image": path}, ""),
    (lambda path: {"type": "image", "image": f"file://{path}"}, ""),
    (lambda path: {"type": "image", "image": {"path": path}}, ""),
    (lambda path: {"type": "image"}, ""),
    (lambda path: {"type": "audio", "audio": path}, ""),
    (lambda path: {"type": "video", "video": path}, ""),
    (lambda path: {"type": "input_image", "image_url": path}, ""),
    (lambda path: {"type": "image_url", "image_url": path}, ".image_url"),
    (lambda path: {"type": "image_url", "image_url": {"url": path}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": f"file://{path}"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": f"FILE://localhost{path}"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x.png"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": f"data:,{path}"}}, ""),
    (lambda path: {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!!"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": "data:image/png"}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {"url": [path]}}, ".image_url.url"),
    (lambda path: {"type": "image_url", "image_url": {}}, ".image_url.url"),
    (lambda path: {"type": "image_url"}, ".image_url"),
    (lambda path: {"type": "audio_url", "audio_url": {"url": "no base64"}}, None),
    (lambda path: {"type": "input_audio", "input_audio": {"data": path, "format": "exe"}}, ".input_audio.format"),
    (lambda path: {"type": "input_audio", "input_audio": path}, ".input_audio"),
    (lambda path: {"type": "input_audio", "input_audio": {}}, ".input_audio.data"),
]


def test_no_part_names_a_file_of_this_machine(live: Any, tmp_path: Path, http: Any, opened: list[str]) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    url = live(write_vlm(tmp_path / "vlm"))
    opened.clear()
    for (part, param), path in itertools.product(PARTS, (str(secret), "/etc/passwd")):
        messages = said("what?", part(path))
        answer = http.post(f"{url}/v1/chat/completions", json={"messages": messages, "max_tokens": 8})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        if param is not None:
            assert error["param"] == f"messages[0].content[1]{param}"
        assert path not in error["message"]
        assert http.post(f"{url}/tokenize", json={"messages": messages}).status_code == 400
        assert http.post(f"{url}/v1/sessions", json={"messages": messages}).status_code == 400
        assert path not in opened
    assert http.post(f"{url}/v1/chat/completions", json={"messages": said(shown())}).status_code == 200


@pytest.mark.parametrize("name", ["images", "audio"])
def test_media_beside_messages_are_refused_by_name(seeing: str, http: Any, name: str) -> None:
    bodies: dict[str, Part] = {
        "/v1/chat/completions": {"messages": said("a")},
        "/v1/completions": {"prompt": "a"},
        "/v1/responses": {"input": "a"},
        "/v1/messages": {"messages": said("a"), "max_tokens": 3},
    }
    for path, body in bodies.items():
        answer = http.post(f"{seeing}{path}", json={**body, name: ["/etc/passwd"]})
        assert answer.status_code == 400, path
        assert name in json.dumps(answer.json()["error"])


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "/x"}]}]},
            "url",
        ),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "image", "image": "/x"}]}]}, "type"),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "x"}]}]},
            "file_id",
        ),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "/x"}}]}]},
            "URL",
        ),
        (
            "/v1/messages",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "x"}}]}
                ]
            },
            "type",
        ),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "image": "/x"}]}]}, "source"),
    ],
)
def test_other_interfaces_read_no_paths_either(seeing: str, http: Any, path: str, body: Part, param: str) -> None:
    answer = http.post(f"{seeing}{path}", json={**body, **({"max_tokens": 3} if path == "/v1/messages" else {})})
    assert answer.status_code == 400
    assert param in answer.text
    assert "/x" not in answer.json()["error"]["message"].replace("/x-", "")


def test_sessions_go_on_with_what_was_shown(seeing: str, http: Any) -> None:
    opened = http.post(f"{seeing}/v1/sessions", json={"messages": said("first", shown())}).json()
    said_now = {"content": [{"type": "text", "text": "more"}, shown(*OTHERS)]}
    turn = http.post(f"{seeing}/v1/sessions/{opened['id']}/messages", json=said_now).json()
    assert turn["choices"][0]["message"]["content"] == SEEN + OTHERS_SEEN
    again = http.post(f"{seeing}/v1/sessions/{opened['id']}/messages", json={"content": "and?"}).json()
    assert again["choices"][0]["message"]["content"] == 2 * (SEEN + OTHERS_SEEN)  # and the answer before
    kept = http.get(f"{seeing}/v1/sessions/{opened['id']}").json()
    assert kept["turns"] == 2
    assert kept["messages"][0]["content"][1]["type"] == "image"
    back = http.post(f"{seeing}/v1/sessions/{opened['id']}/rewind", json={"turn": 0})
    assert back.status_code == 200
    turn = http.post(f"{seeing}/v1/sessions/{opened['id']}/messages", json={"content": "and?"}).json()
    assert turn["choices"][0]["message"]["content"] == SEEN
    bad = http.post(
        f"{seeing}/v1/sessions/{opened['id']}/messages", json={"content": [{"type": "image", "image": "/x"}]}
    )
    assert bad.status_code == 400

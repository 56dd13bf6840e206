"""Images and sounds in messages over HTTP: what a client sends is seen and heard; nothing of this machine is read."""

from __future__ import annotations

import base64
import http.server
import itertools
import json
import struct
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from anthropic import Anthropic
from openai import OpenAI
from PIL import Image

from genai_pipeline.server import media_urls
from genai_pipeline.server.limits import Limits
from genai_pipeline.server.media_urls import MediaFetcher, MediaRules
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


def test_each_interface_names_its_own_field(seeing: str, http: Any) -> None:
    system = {"system": "s", "max_tokens": 3}
    source = {"type": "base64", "media_type": "image/png", "data": "?"}
    picture = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}
    for given, place in ((source, ".content[1].source.data"), (picture, "")):
        content = [{"type": "text", "text": "a"}, {"type": "image", "source": given}]
        body = {**system, "messages": [{"role": "user", "content": content}]}
        message = http.post(f"{seeing}/v1/messages", json=body).json()["error"]["message"]
        assert message.startswith(f"messages[0]{place}"), message
    image = {"type": "input_image", "image_url": "data:image/png;base64,?"}
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": [image]}]
    error = http.post(f"{seeing}/v1/responses", json={"instructions": "s", "input": items}).json()["error"]
    assert error["param"] == "input[1].content[0].image_url"


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


def ask(http: Any, url: str, *parts: Any, **options: Any) -> Any:
    return http.post(f"{url}/v1/chat/completions", json={"messages": said(*parts), **options})


def test_parts_of_text_and_images_keep_their_order(live: Any, tiny: Any, tmp_path: Path, http: Any) -> None:
    seeing, blind = live(write_vlm(tmp_path / "vlm")), live(tiny())
    answer = ask(http, seeing, shown(*OTHERS), "and", shown())
    assert answer.json()["choices"][0]["message"]["content"] == OTHERS_SEEN + SEEN
    refused = ask(http, blind, "what?", shown())
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages[0].content[1]")
    assert "takes no image" in refused.json()["error"]["message"]
    heard_by_none = ask(http, seeing, heard("600Hz", "soft"))
    assert "takes no audio" in heard_by_none.json()["error"]["message"]
    assert (
        http.post(f"{seeing}/v1/chat/completions", json={"messages": [{"role": "user", "content": []}]}).status_code
        == 400
    )


def lying_png() -> bytes:
    """A picture whose header says 50 000 x 50 000."""
    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png()[33:]


def test_an_odd_image_is_a_400_and_a_stream_beside_it_goes_on(seeing: str, http: Any) -> None:
    body = {"messages": said("what?", shown()), "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    alone = http.post(f"{seeing}/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    odd = [b"no picture", png()[:60], lying_png(), b"\xff\xd8\xff" + b"\0" * 50, b"GIF89a"]
    with http.stream("POST", f"{seeing}/v1/chat/completions", json={**body, "stream": True}) as stream:
        lines = (json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {"))
        text = next(lines)["choices"][0]["delta"].get("content") or ""
        with httpx.Client(timeout=60) as other:
            for data in odd:
                answer = ask(other, seeing, {"type": "image_url", "image_url": {"url": data_url(data)}})
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (400, "messages[0].content[0]"), error
        text += "".join(line["choices"][0]["delta"].get("content") or "" for line in lines)
    assert text == alone
    assert ask(http, seeing, shown()).json()["choices"][0]["message"]["content"] == SEEN


INSIDE = [
    "http://127.0.0.1/x.png",
    "http://localhost/x.png",
    "http://169.254.169.254/latest/meta-data",
    "http://[::1]/x.png",
    "http://2130706433/x.png",
    "https://user@localhost/x.png",
    "http://localhost:22/x.png",
    "file:///etc/passwd",
    "ftp://localhost/x.png",
    "gopher://localhost",
    "//localhost/x.png",
]


@pytest.mark.parametrize("hosts", [(), ("localhost", "127.0.0.1", "169.254.169.254", "::1")])
def test_addresses_inside_are_refused_even_if_they_are_listed(
    live: Any, tmp_path: Path, http: Any, hosts: tuple[str, ...]
) -> None:
    url = live(write_vlm(tmp_path / "vlm"), media=MediaRules(hosts=hosts))
    for inside in INSIDE:
        answer = ask(http, url, {"type": "image_url", "image_url": {"url": inside}})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "media_not_allowed"), inside
        assert error["param"] == "messages[0].content[0].image_url.url"
        assert inside not in error["message"]


class Host(http.server.BaseHTTPRequestHandler):
    """Serves a picture, and sends to others."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "http://inside.test/picture.png")
        if self.path == "/huge":
            self.send_header("Content-Length", str(1 << 30))
        self.end_headers()
        if self.path != "/moved":
            self.wfile.write(png())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[MediaFetcher]:
    """What fetches from a host on this machine as if it were outside; ``inside.test`` is where nobody may go."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setitem(media_urls.PORTS, "http", server.server_address[1])
        yield MediaFetcher(
            MediaRules(hosts=("media.test", "inside.test")),
            resolve=lambda name, port: ["127.0.0.1" if name == "media.test" else "10.0.0.1"],
            allowed=lambda address: str(address) == "127.0.0.1",
        )
        server.shutdown()
        thread.join()


def test_images_by_url_come_from_listed_hosts(serving: Any, tmp_path: Path, outside: MediaFetcher) -> None:
    server = serving(write_vlm(tmp_path / "vlm"))
    server.app.state.media = outside
    with httpx.Client(timeout=60) as client:

        def look(path: str) -> Any:
            return ask(client, server.url, {"type": "image_url", "image_url": {"url": f"http://media.test/{path}"}})

        assert look("picture.png").json()["choices"][0]["message"]["content"] == SEEN
        for path, code in (("moved", "media_not_allowed"), ("huge", "media_too_large")):
            answer = look(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
            assert "test" not in answer.json()["error"]["message"]
        anthropic = Anthropic(base_url=server.url, api_key="none")
        block: Any = {"type": "image", "source": {"type": "url", "url": "http://media.test/picture.png"}}
        messages: Any = [{"role": "user", "content": [block]}]
        message = anthropic.messages.create(model="tiny-vlm", max_tokens=20, messages=messages)
        assert message.content[0].text == SEEN  # type: ignore[union-attr]


def test_bodies_may_be_larger_by_their_media_alone(live: Any, tiny: Any, tmp_path: Path, http: Any) -> None:
    limits = Limits(body_bytes=20_000, media_bytes=200_000)
    seeing, blind = (live(package, limits=limits) for package in (write_vlm(tmp_path / "vlm"), tiny()))
    file = BytesIO()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 255, (150, 150, 3), np.uint8)).save(file, "PNG")
    large = {"type": "image_url", "image_url": {"url": data_url(file.getvalue())}}
    assert len(file.getvalue()) > 3 * limits.body_bytes
    assert ask(http, seeing, large).status_code == 200
    assert ask(http, blind, large).status_code == 413
    too_long = ask(http, seeing, "x" * 30_000, large)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (413, "body_too_large")
    answer = http.post(f"{seeing}/v1/completions", json={"prompt": "x" * 30_000})
    assert answer.status_code == 413
    escaped = json.dumps({"messages": said(large)}).replace("/", "\\/").encode()
    json_header = {"content-type": "application/json"}
    assert http.post(f"{seeing}/v1/chat/completions", content=escaped, headers=json_header).status_code == 200
    session = http.post(f"{seeing}/v1/sessions", json={}).json()["id"]
    turns = [http.post(f"{seeing}/v1/sessions/{session}/messages", json={"content": [large]}) for _ in range(3)]
    assert [turn.status_code for turn in turns] == [200, 200, 400]
    assert turns[-1].json()["error"]["code"] == "too_many_media"


def test_numbers_of_media_and_room_for_them_are_limited(live: Any, tmp_path: Path, http: Any) -> None:
    few = live(write_vlm(tmp_path / "vlm"), limits=Limits(media_items=3))
    answer = ask(http, few, *[shown()] * 4)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_media")
    assert ask(http, few, *[shown()] * 3).status_code == 200
    narrow = live(write_vlm(tmp_path / "vlm2"), limits=Limits(media_room_bytes=len(png()) + 10))
    assert ask(http, narrow, shown()).status_code == 200
    full = ask(http, narrow, shown(), shown())
    assert (full.status_code, full.json()["error"]["code"]) == (503, "media_room_full")
    assert "retry-after" in full.headers
    assert ask(http, narrow, shown()).status_code == 200  # it was given back
    many = live(write_vlm(tmp_path / "vlm3"))
    refused = ask(http, many, *[shown()] * 5)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "images")


def test_stored_responses_are_shown_without_their_data(seeing: str, http: Any) -> None:
    image = {"type": "input_image", "image_url": data_url(png())}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a"}, image]}]
    made = http.post(f"{seeing}/v1/responses", json={"input": items}).json()
    (item,) = http.get(f"{seeing}/v1/responses/{made['id']}/input_items").json()["data"]
    assert item["content"] == [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": None}]

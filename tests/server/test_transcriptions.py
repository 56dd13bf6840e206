"""``/v1/audio/transcriptions`` with the official client, and forms that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.limits import Limits
from genai_pipeline.server.multipart import Part, parse
from genai_pipeline.testing.signals import tone, wav_bytes
from genai_pipeline.testing.voices import write_transcriber

PATH = "/v1/audio/transcriptions"
SOUND = wav_bytes(tone("600Hz", "soft"))
FILE = ("a.wav", SOUND)
HEARD = "soft600Hz"


@pytest.fixture
def url(live: Any, tmp_path: Path) -> str:
    return str(live(write_transcriber(tmp_path / "transcriber")))


@pytest.fixture
def api(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_every_format(api: OpenAI) -> None:
    def made(format: Any, **options: Any) -> Any:
        return api.audio.transcriptions.create(model="", file=FILE, response_format=format, **options)

    plain = made("json")
    assert (plain.text, plain.usage.type, plain.usage.seconds) == (HEARD, "duration", 1)
    assert made("text") == f"{HEARD}\n"
    assert made("srt") == f"1\n00:00:00,000 --> 00:00:00,100\n{HEARD}\n"
    assert made("vtt") == f"WEBVTT\n\n00:00:00.000 --> 00:00:00.100\n{HEARD}\n"
    verbose = made("verbose_json", timestamp_granularities=["segment"])
    assert (verbose.text, verbose.duration) == (HEARD, 0.1)
    assert [(segment.id, segment.start, segment.end, segment.text) for segment in verbose.segments] == [
        (0, 0, 0.1, HEARD)
    ]
    assert api.audio.transcriptions.create(model="", file=FILE, temperature=0.5, extra_body={"seed": 1}).text


def test_a_stream_gives_the_text_as_it_is_made(api: OpenAI) -> None:
    events = list(api.audio.transcriptions.create(model="", file=FILE, stream=True))
    deltas = [event.delta for event in events if event.type == "transcript.text.delta"]
    assert "".join(deltas) == HEARD
    assert len(deltas) == 2  # a word is a token
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == HEARD
    with pytest.raises(BadRequestError):
        api.audio.transcriptions.create(model="", file=("a.wav", b"no sound"), stream=True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"language": "en"}, "language"),
        ({"prompt": "x"}, "prompt"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": "-1"}, "temperature"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"response_format": "srt", "stream": "true"}, "response_format"),
        ({"stream": "yes"}, "stream"),
        ({"timestamp_granularities[]": "word", "response_format": "verbose_json"}, "timestamp_granularities"),
        ({"timestamp_granularities[]": "segment"}, "timestamp_granularities"),
        ({"timestamp_granularities[]": "line", "response_format": "srt"}, "timestamp_granularities"),
        ({"include[]": "logprobs"}, "include"),
        ({"chunking_strategy": "server_vad"}, "chunking_strategy"),
        ({"known_speaker_names[]": "me"}, "known_speaker_names"),
        ({"parameters": "3"}, "parameters"),
        ({"parameters": '{"audio": "/etc/passwd"}'}, "parameters.audio"),
        ({"parameters": '{"prompt": "x"}'}, "parameters.prompt"),
        ({"seed": "1.5"}, "seed"),
        ({"timeout": "0"}, "timeout"),
    ],
)
def test_fields_that_are_wrong_or_not_supported(url: str, http: Any, fields: dict[str, str], param: str) -> None:
    answer = http.post(url + PATH, data=fields, files={"file": FILE})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_declared_parameters_are_honoured(live: Any, tmp_path: Path, http: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["parameters"] = {"language": {"type": "choice", "values": ["en", "de"], "default": "en"}}

    url = live(write_transcriber(tmp_path / "transcriber", edit=edit))
    fields = {"language": "de", "response_format": "verbose_json"}
    answer = http.post(url + PATH, data=fields, files={"file": FILE}).json()
    assert (answer["text"], answer["language"]) == (HEARD, "de")
    wrong = http.post(url + PATH, data={"language": "fr"}, files={"file": FILE})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "language")


def test_a_file_that_is_no_sound_or_not_there(url: str, http: Any) -> None:
    for data in (b"", b"no sound", SOUND[:40], b"fLaC" + bytes(50), b"/etc/passwd"):
        answer = http.post(url + PATH, files={"file": ("a.wav", data)})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file"), answer.text
    assert http.post(url + PATH, files={"sound": FILE}).json()["error"]["param"] == "file"
    as_text = http.post(url + PATH, data={"file": "/etc/passwd"}, files={"x": b""})
    assert (as_text.status_code, as_text.json()["error"]["param"]) == (400, "file")
    twice = http.post(url + PATH, files=[("file", FILE), ("file", FILE)])
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "file")
    assert http.post(url + PATH, files={"file": FILE}).status_code == 200


def test_size_type_and_origin_of_a_form(live: Any, tmp_path: Path, http: Any) -> None:
    url = live(write_transcriber(tmp_path / "small"), limits=Limits(media_bytes=1024), cors=("https://app.test",))
    assert http.post(url + PATH, files={"file": FILE}).status_code == 413

    def pieces() -> Any:  # of a length that is not said
        yield from [b"x" * 512] * 8

    multipart = {"content-type": "multipart/form-data; boundary=x"}
    assert http.post(url + PATH, content=pieces(), headers=multipart).status_code == 413
    assert http.post(url + PATH, json={}).status_code == 415
    assert http.post(url + PATH, content=b"a=b", headers={"content-type": "multipart/form-data"}).status_code == 400
    evil = http.post(url + PATH, files={"file": b"x"}, headers={"origin": "https://evil.test"})
    assert (evil.status_code, evil.json()["error"]["code"]) == (403, "origin_not_allowed")
    for origin in ("https://app.test", url):
        heard = http.post(url + PATH, files={"file": ("a.wav", b"x")}, headers={"origin": origin})
        assert heard.json()["error"]["param"] == "file"
    packed = http.post(url + PATH, content=b"x", headers={**multipart, "content-encoding": "gzip"})
    assert packed.status_code == 415


def test_a_client_that_leaves_cancels(serving: Any, tmp_path: Path, http: Any) -> None:
    def long(metadata: dict[str, Any]) -> None:
        metadata["generation"] = {"defaults": {"temperature": 0, "ignore_eos": True}}
        metadata["limits"]["context_length"] = 20_000

    server = serving(write_transcriber(tmp_path / "transcriber", edit=long))
    with http.stream("POST", server.url + PATH, data={"stream": "true"}, files={"file": FILE}) as answer:
        next(answer.iter_lines())

    def status() -> Any:
        (model,) = http.get(f"{server.url}/admin/status").json()["models"]
        return model["engine"]

    while status()["running"]:
        pass
    assert status()["requests"]["cancelled"] == 1


def form(*parts: bytes, end: bytes = b"--x--\r\n") -> bytes:
    return b"".join(b"--x\r\n" + part + b"\r\n" for part in parts) + end


def test_parts_are_what_was_sent() -> None:
    binary = bytes(range(256)) + b"\r\n--y\r\n--x"[:8]
    sent = httpx.Request("POST", "http://x", data={"é": "ö", "b": ""}, files={"f": ('ä".wav', binary)})
    boundary = sent.headers["content-type"].partition("boundary=")[2]
    assert parse(sent.read(), boundary) == [
        Part("é", None, "ö".encode()),
        Part("b", None, b""),
        Part("f", "ä%22.wav", binary),
    ]
    quoted = b'Content-Type: text/plain\r\nContent-Disposition: form-data; filename="a;b.wav"; name="n"\r\n\r\n1'
    assert parse(form(quoted), "x") == [Part("n", "a;b.wav", b"1")]
    assert parse(b"before\r\n" + form(quoted), "x")[0].data == b"1"
    assert parse(form(), "x") == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"--x",
        b"--x\r\n",
        form(b'Content-Disposition: form-data; name="a"\r\n\r\n1', end=b""),
        form(b'Content-Disposition: form-data; name="a"\r\n1'),
        form(b"Content-Disposition: form-data\r\n\r\n1"),
        form(b'Content-Disposition: attachment; name="a"\r\n\r\n1'),
        form(b"Content-Type: text/plain\r\n\r\n1"),
        form(b"X: " + b"y" * 9000 + b'\r\nContent-Disposition: form-data; name="a"\r\n\r\n1'),
        form(*[b'Content-Disposition: form-data; name="a"\r\n\r\n1'] * 65),
        b"--xyz\r\n" + form(),
    ],
)
def test_forms_that_are_malformed(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse(data, "x")
    assert (caught.value.status, caught.value.code) == (400, "invalid_multipart")

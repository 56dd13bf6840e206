"""``/v1/audio/speech`` with the official client: samples whose numbers are known, as they are made."""

from __future__ import annotations

import base64
import io
import json
import wave
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI

from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.voices import RATE, SAMPLES, speech_vocabulary, spoken, write_speaker

PATH = "/v1/audio/speech"
TEXT = "abcde"


@pytest.fixture
def url(live: Any, tmp_path: Path) -> str:
    return str(live(write_speaker(tmp_path / "speaker")))


@pytest.fixture
def api(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def pcm(text: str, speed: float = 1.0) -> bytes:
    samples = np.array(spoken(speech_vocabulary().encode(text), speed), np.float32)
    return np.rint(samples * 32767).astype("<i2").tobytes()


def test_wav_and_samples(api: OpenAI) -> None:
    made = api.audio.speech.create(model="tiny-speaker", voice="default", input=TEXT)
    assert made.response.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(made.content)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (RATE, 1, 2)
        assert reader.readframes(10**6) == pcm(TEXT)
    bare = api.audio.speech.create(model="", voice="tiny-speaker", input=TEXT, response_format="pcm", speed=2)
    assert bare.content == pcm(TEXT, 2)
    assert bare.response.headers["content-type"] == f"audio/pcm; rate={RATE}; channels=1"
    assert bare.response.headers["transfer-encoding"] == "chunked"


def test_events_have_a_piece_each(url: str, http: Any) -> None:
    body = {"input": TEXT, "response_format": "pcm", "stream_format": "sse"}
    lines = http.post(url + PATH, json=body).text.split("\n\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    pieces = [base64.b64decode(event["audio"]) for event in events[:-1]]
    assert [len(piece) // 2 // SAMPLES for piece in pieces] == [2, 2, 1]  # the loop makes two tokens at a time
    assert b"".join(pieces) == pcm(TEXT)
    usage = {"input_tokens": 5, "output_tokens": 0, "total_tokens": 5}
    assert events[-1] == {"type": "speech.audio.done", "usage": usage}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": "  "}, "input"),
        ({"input": 3}, "input"),
        ({"voice": "alloy"}, "voice"),
        ({"voice": {"id": "alloy"}}, "voice"),
        ({"voice": {"name": "alloy"}}, "voice.id"),
        ({"instructions": "shout"}, "instructions"),
        ({"response_format": "mp3"}, "response_format"),
        ({"response_format": "ogg"}, "response_format"),
        ({"stream_format": "chunks"}, "stream_format"),
        ({"speed": 5}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"parameters": {"volume": 3}}, "parameters.volume"),
        ({"parameters": {"prompt": "x"}}, "parameters.prompt"),
        ({"parameters": {"speed": "x"}}, "speed"),
        ({"parameters": []}, "parameters"),
    ],
)
def test_what_is_wrong_is_named(url: str, http: Any, fields: dict[str, Any], param: str) -> None:
    answer = http.post(url + PATH, json={"input": TEXT, **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_what_a_package_declares_it_takes(live: Any, tmp_path: Path, http: Any) -> None:
    def edit(metadata: dict[str, Any]) -> None:
        voices = {"type": "choice", "values": ["ann", "bob"], "default": "ann"}
        text = {"type": "string", "default": ""}
        metadata["inputs"]["parameters"].update(voice=voices, instructions=text)

    def mute(metadata: dict[str, Any]) -> None:
        del metadata["inputs"]["parameters"]
        metadata["stages"][1]["body"][0]["inputs"]["speed"] = [1.0]

    url = live(write_speaker(tmp_path / "voices", edit=edit))
    for voice in ("bob", {"id": "bob"}):
        assert http.post(url + PATH, json={"input": TEXT, "voice": voice, "instructions": "x"}).status_code == 200
    wrong = http.post(url + PATH, json={"input": TEXT, "voice": "default"})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "voice")
    url = live(write_speaker(tmp_path / "plain", edit=mute))
    assert http.post(url + PATH, json={"input": TEXT, "speed": 1}).status_code == 200
    fast = http.post(url + PATH, json={"input": TEXT, "speed": 2})
    assert (fast.status_code, fast.json()["error"]["param"]) == (400, "speed")


def test_a_client_that_leaves_cancels(serving: Any, tmp_path: Path, http: Any) -> None:
    server = serving(write_speaker(tmp_path / "speaker"))
    with http.stream("POST", server.url + PATH, json={"input": "a" * 200_000}) as answer:
        next(answer.iter_bytes())

    def engine() -> Any:
        (model,) = http.get(f"{server.url}/admin/status").json()["models"]
        return model["engine"]

    while engine()["running"]:
        pass
    assert engine()["requests"]["cancelled"] == 1
    assert http.post(server.url + PATH, json={"input": TEXT}).status_code == 200


def test_what_fails_under_way_ends_without_an_end(live: Any, tmp_path: Path, http: Any) -> None:
    package = write_speaker(tmp_path / "speaker")
    bad = speech_vocabulary().id("e") / 1024
    graph = GraphBuilder("voice")
    levels, speed = graph.input("levels", "float32", ["b", "s"]), graph.input("speed", "float32", [1])
    broken = graph.op("Div", speed, graph.op("Sub", levels, bad))  # one token has no finite samples
    repeated = graph.op("Expand", graph.op("Unsqueeze", broken, [-1]), [1, 1, SAMPLES])
    graph.output("wave", graph.op("Reshape", repeated, [0, -1]), "float32", ["b", "samples"])
    graph.save(package / "voice.onnx")
    url = live(package)
    body = {"input": "abcde", "response_format": "pcm"}
    with http.stream("POST", url + PATH, json=body) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
    lines = http.post(url + PATH, json={**body, "stream_format": "sse"}).text.strip().split("\n\n")
    assert len(lines) == 3  # two pieces, and what went wrong
    assert json.loads(lines[-1].removeprefix("data: "))["error"]["type"] == "server_error"
    early = http.post(url + PATH, json={**body, "input": "e"})
    assert (early.status_code, early.json()["error"]["type"]) == (500, "server_error")
    assert http.post(url + PATH, json={**body, "input": "abcd"}).status_code == 200  # nobody else notices

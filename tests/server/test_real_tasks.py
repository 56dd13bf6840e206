"""Embeddings, transcriptions and speech over HTTP on real weights, with the official client."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from openai import OpenAI

ROOM = {"memory": 512 << 20}


def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120)


def test_minilm_embeds(live: Any) -> None:
    api = client(live("minilm"))
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "Stocks fell sharply today."]
    made = api.embeddings.create(model="minilm", input=texts)
    vectors = np.array([item.embedding for item in made.data])
    assert vectors.shape == (3, 384)
    near, far = vectors[0] @ vectors[1], vectors[0] @ vectors[2]
    assert near > 0.6 > 0.3 > far
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert made.usage.prompt_tokens == 8 + 11 + 7  # [CLS], words, full stop, [SEP]


def test_whisper_transcribes(live: Any, beckett_wav: Path) -> None:
    api = client(live("whisper-tiny.en", load=ROOM))
    said = "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
    assert api.audio.transcriptions.create(model="whisper-tiny.en", file=beckett_wav).text == said
    cues: Any = api.audio.transcriptions.create(model="", file=beckett_wav, response_format="srt")
    assert cues.startswith("1\n00:00:00,000 --> 00:00:0")
    assert " ".join(block.splitlines()[2] for block in cues.strip().split("\n\n")) == said
    events = list(api.audio.transcriptions.create(model="", file=beckett_wav, stream=True))
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == said
    assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == said


def test_joe_speaks_and_whisper_understands(live: Any) -> None:
    api = client(live("piper-joe", "whisper-tiny.en", load=ROOM))
    text = "The quick brown fox jumps over the lazy dog."
    asked: Any = {"model": "piper-joe", "voice": "default", "input": text, "extra_body": {"seed": 1}}
    with api.audio.speech.with_streaming_response.create(**asked) as answer:
        pieces = list(answer.iter_bytes())
    sound = b"".join(pieces)
    assert len(pieces) > 2
    samples, rate = soundfile.read(io.BytesIO(sound))
    assert rate == 22050
    assert 1 < len(samples) / rate < 10
    assert api.audio.speech.create(**asked).content == sound  # a seed repeats the wave
    heard = api.audio.transcriptions.create(model="whisper-tiny.en", file=("joe.wav", sound))
    assert heard.text.strip().lower().rstrip(".") == text.lower().rstrip(".")

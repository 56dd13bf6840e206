"""``/v1/embeddings`` with the official client: vectors whose numbers are known."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import OpenAI

from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.limits import KeyLimits
from genai_pipeline.testing.graphs.senses import PITCHES
from genai_pipeline.testing.media import write_embedder
from genai_pipeline.testing.signals import PITCH_WORDS
from genai_pipeline.testing.vocabulary import words

TEXTS = ["200Hz 200Hz 600Hz 600Hz", "1000Hz", "a 400Hz b 800Hz"]
VECTORS = np.zeros((3, len(PITCHES)), np.float32)
VECTORS[[0, 0, 1, 2, 2], [0, 2, 4, 1, 3]] = [0.5**0.5, 0.5**0.5, 1, 0.5**0.5, 0.5**0.5]


@pytest.fixture
def url(live: Any, tiny: Any, tmp_path: Path) -> str:
    return str(live(write_embedder(tmp_path / "embedder"), tiny(name="talker")))


@pytest.fixture
def api(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def rows(made: Any) -> Any:
    assert [item.index for item in made.data] == list(range(len(made.data)))
    return np.array([item.embedding for item in made.data])


def test_texts_become_vectors_in_order(api: OpenAI) -> None:
    vocabulary = words(*PITCH_WORDS)
    for encoding in ("float", "base64"):
        made = api.embeddings.create(model="tiny-embedder", input=TEXTS, encoding_format=encoding)  # type: ignore[call-overload]
        given = [item.embedding for item in made.data]
        if encoding == "base64":
            given = [np.frombuffer(base64.b64decode(text), "<f4") for text in given]
        np.testing.assert_allclose(np.array(given), VECTORS, atol=1e-6)
        counted = sum(len(vocabulary.encode(text)) for text in TEXTS)
        assert made.usage.to_dict() == {"prompt_tokens": counted, "total_tokens": counted}
        assert made.model == "tiny-embedder"
    np.testing.assert_allclose(rows(api.embeddings.create(model="", input=TEXTS[1])), VECTORS[1:2], atol=1e-6)


def test_dimensions_shorten_and_scale(api: OpenAI) -> None:
    made = api.embeddings.create(model="tiny-embedder", input=TEXTS[0], dimensions=2)
    np.testing.assert_allclose(rows(made), [[1, 0]], atol=1e-6)


def test_token_ids_are_texts_too(api: OpenAI) -> None:
    vocabulary = words(*PITCH_WORDS)
    ids = [list(vocabulary.encode(text)) for text in TEXTS]
    made = api.embeddings.create(model="tiny-embedder", input=ids)
    np.testing.assert_allclose(rows(made), VECTORS, atol=1e-6)
    assert made.usage.prompt_tokens == sum(map(len, ids))
    np.testing.assert_allclose(rows(api.embeddings.create(model="", input=ids[1])), VECTORS[1:2], atol=1e-6)


def test_a_package_that_takes_one_text_at_a_time(live: Any, tmp_path: Path) -> None:
    def single(metadata: dict[str, Any]) -> None:
        metadata["inputs"]["prompt"] = {"modality": "text"}
        (stage,) = metadata["stages"]
        metadata["stages"] = stage["body"]
        metadata["outputs"]["texts"]["value"] = "unit"

    url = live(write_embedder(tmp_path / "single", edit=single), load={"max_queue": 64})
    api = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    made = api.embeddings.create(model="", input=TEXTS * 30)
    np.testing.assert_allclose(rows(made), np.tile(VECTORS, (30, 1)), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", [1]]}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [10**9]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": [["a"]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 9}, "dimensions"),
        ({"input": "a", "dimensions": "2"}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "parameters": {"x": 1}}, "parameters.x"),
        ({"input": "a", "parameters": {"prompt": ["/etc/passwd"]}}, "parameters.prompt"),
        ({"input": [1], "parameters": {"x": 1}}, "x"),
        ({"input": "a", "timeout": -1}, "timeout"),
        ({"input": "a", "priority": "first"}, "priority"),
        ({"input": "a", "model": "talker"}, "model"),
    ],
)
def test_what_is_wrong_is_named(url: str, http: Any, body: dict[str, Any], param: str) -> None:
    answer = http.post(f"{url}/v1/embeddings", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


def test_work_that_a_model_does_not_do_is_refused_by_name(url: str, http: Any) -> None:
    def refused(path: str, model: str, **given: Any) -> str:
        answer = http.post(f"{url}/v1/{path}", **(given or {"json": {"model": model, "input": "a"}}))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_task"), answer.text
        return str(answer.json()["error"]["message"])

    assert "models that do: tiny-embedder" in refused("embeddings", "talker")
    assert "no model that is served here does" in refused("audio/speech", "talker")
    assert "no model that is served here does" in refused("images/generations", "talker")
    form = {"data": {"model": "talker"}, "files": {"file": b"x"}}
    assert "transcribes" in refused("audio/transcriptions", "talker", **form)
    for path, body in (("completions", {"prompt": "a"}), ("responses", {"input": "a"})):
        assert "models that do: talker" in refused(path, "", json={"model": "tiny-embedder", **body})
    gone = http.post(f"{url}/v1/embeddings", json={"model": "x", "input": "a"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")


def test_models_say_what_they_can_do(url: str, http: Any) -> None:
    def told(model: dict[str, Any]) -> tuple[Any, ...]:
        return model["id"], model["input_modalities"], model["output_modalities"], model["tasks"], model["loaded"]

    embedder = ("tiny-embedder", ["text"], ["vector"], ["embed"], True)
    talker = ("talker", ["text"], ["text"], ["generate"], False)
    assert [told(model) for model in http.get(f"{url}/v1/models").json()["data"]] == [embedder, talker]
    assert told(http.get(f"{url}/v1/models/talker").json()) == talker


def test_limits_and_metrics_count_what_was_embedded(live: Any, tmp_path: Path, http: Any) -> None:
    keys = (ApiKey.of("app", "secret", limits=KeyLimits(tokens_per_minute=10)), ApiKey.of("ops", "other", admin=True))
    url = live(write_embedder(tmp_path / "embedder"), keys=keys)
    mine = {"authorization": "Bearer secret"}
    body = {"input": ["1000Hz a b c d e f g h i j k l m n o p"]}
    first = http.post(f"{url}/v1/embeddings", json=body, headers=mine)
    assert first.status_code == 200
    again = http.post(f"{url}/v1/embeddings", json=body, headers=mine)
    assert again.status_code == 429
    metrics = http.get(f"{url}/metrics", headers={"authorization": "Bearer other"}).text
    tokens = first.json()["usage"]["prompt_tokens"]
    assert f'genai_http_tokens_total{{kind="prompt",model="tiny-embedder"}} {tokens}.0' in metrics
    assert 'route="/v1/embeddings",status="200"' in metrics

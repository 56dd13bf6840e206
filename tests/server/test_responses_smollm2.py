"""Responses, messages and sessions of SmolLM2 through the official clients: the reference's tokens, kept state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pydantic
import pytest

from genai_pipeline.server.config import Served, ServerConfig
from genai_pipeline.server.live import LiveServer

CASES = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]
MODEL = "smollm2-135m"
END = 2  # the token that ends a turn


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


@pytest.fixture(scope="module")
def server(smollm2_f32: Path) -> Iterator[LiveServer]:
    config = ServerConfig.of([Served(MODEL, str(smollm2_f32))], port=0, drain_seconds=0, warm_up=False)
    with LiveServer(config) as made:
        yield made


@pytest.fixture(scope="module")
def responses(server: LiveServer) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300, max_retries=0) as client:
        yield client.responses


@pytest.fixture(scope="module")
def messages(server: LiveServer) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", timeout=300, max_retries=0) as client:
        yield client.messages


@pytest.fixture(scope="module")
def wanted(server: LiveServer) -> list[tuple[str, str]]:
    """Prompts, and the texts of the reference's greedy tokens."""
    with httpx.Client(timeout=300) as client:
        found = []
        for case in CASES:
            tokens = case["greedy_tokens"][:16]
            tokens = tokens[: tokens.index(END)] if END in tokens else tokens
            answer = client.post(f"{server.url}/detokenize", json={"tokens": tokens})
            found.append((case["prompt"], answer.json()["prompt"]))
        return found


def test_responses_are_the_references(responses: Any, wanted: list[tuple[str, str]]) -> None:
    for prompt, text in wanted:
        ask = {"model": MODEL, "input": prompt, "temperature": 0, "max_output_tokens": 16}
        assert responses.create(**ask).output_text == text
        with responses.stream(**ask) as events:
            deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert len(deltas) > 5
        assert "".join(deltas) == text


def test_a_response_is_parsed_and_gone_on_from(responses: Any) -> None:
    ask = {"model": MODEL, "temperature": 0}
    parsed = responses.parse(input="Tom is 5 years old. Describe Tom as JSON.", text_format=Person, **ask)
    assert isinstance(parsed.output_parsed, Person)
    after = responses.create(input="Thank you.", previous_response_id=parsed.id, max_output_tokens=8, **ask)
    assert after.usage.input_tokens > parsed.usage.total_tokens
    assert after.usage.input_tokens_details.cached_tokens >= parsed.usage.input_tokens // 16 * 16


def test_messages_are_the_references(messages: Any, wanted: list[tuple[str, str]]) -> None:
    for prompt, text in wanted:
        talk = [{"role": "user", "content": prompt}]
        ask = {"model": MODEL, "max_tokens": 16, "messages": talk, "extra_body": {"temperature": 0}}
        whole = messages.create(**ask)
        assert whole.content[0].text == text
        with messages.stream(**ask) as events:
            streamed = "".join(events.text_stream)
            final = events.get_final_message()
        assert (streamed, final.stop_reason) == (whole.content[0].text, whole.stop_reason)
        counted = messages.count_tokens(model=MODEL, messages=talk).input_tokens
        assert counted == final.usage.input_tokens + final.usage.cache_read_input_tokens


def test_turns_of_a_session_are_those_of_the_whole_conversation(server: LiveServer) -> None:
    options = {"temperature": 0, "max_tokens": 12}
    talk: list[Any] = [{"role": "system", "content": "You are a helpful AI assistant."}]
    with httpx.Client(base_url=server.url, timeout=300) as client:
        session = client.post("/v1/sessions", json={"messages": talk}).json()["id"]
        for said in ("What is the capital of France?", "And of Italy?"):
            talk.append({"role": "user", "content": said})
            body = {"content": said, **options}
            turn = client.post(f"/v1/sessions/{session}/messages", json=body).json()
            whole = client.post("/v1/chat/completions", json={"messages": talk, **options}).json()
            assert turn["choices"] == whole["choices"]
            talk.append({"role": "assistant", "content": turn["choices"][0]["message"]["content"]})
        assert turn["usage"]["prompt_tokens_details"]["cached_tokens"] >= 32
        assert client.get(f"/v1/sessions/{session}").json()["messages"] == talk

"""The official client of OpenAI against a live server, with nothing special: closed-form packages and SmolLM2."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pydantic
import pytest

from genai_pipeline.server.config import Served, ServerConfig
from genai_pipeline.server.live import LiveServer

CASES = json.loads((Path(__file__).parents[1] / "data" / "smollm2_greedy.json").read_text(encoding="utf-8"))["cases"]
USER: list[Any] = [{"role": "user", "content": "hi"}]
END = "<|im_end|>"
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Place(pydantic.BaseModel):
    """Where somebody wants to go."""

    city: Literal["Paris", "Rome", "Oslo"]
    days: Literal[1, 2, 3]


WEATHER = openai.pydantic_function_tool(Place, name="get_weather")


@pytest.fixture
def client(live: Any, tiny: Any) -> Iterator[Callable[..., openai.OpenAI]]:
    """``client(kind, **package)``: the official client of a server of one package."""
    opened: list[openai.OpenAI] = []

    def connect(kind: str = "script", **package: Any) -> openai.OpenAI:
        url = live(tiny(kind, **package))
        opened.append(openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=60, max_retries=0))
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def with_tools(metadata: dict[str, Any]) -> None:
    metadata["tools"] = {"format": "json_tagged"}


@pytest.fixture(scope="module")
def smollm2(smollm2_f32: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """The client of a server of SmolLM2, also under a template that shows tools."""
    folder = tmp_path_factory.mktemp("smollm2") / "tools"
    shutil.copytree(smollm2_f32, folder, copy_function=linked)
    metadata = folder / "inference_metadata.yaml"
    for file, text in (
        (metadata, f"{metadata.read_text(encoding='utf-8')}\ntools: {{format: json_tagged}}\n"),
        (folder / "chat_template.jinja", TEMPLATE),
    ):
        file.unlink()
        file.write_text(text, encoding="utf-8")
    packages = [Served("smollm2-135m", str(smollm2_f32)), Served("smollm2-tools", str(folder))]
    config = ServerConfig.of(packages, port=0, drain_seconds=0, warm_up=False)
    with (
        LiveServer(config) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=300, max_retries=0) as made,
    ):
        yield made


def linked(source: str, target: str) -> str:
    """Large files are not copied where they need not be."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def test_chat_and_completions_streamed_and_not(client: Any) -> None:
    api = client(name="it")
    assert [model.id for model in api.models.list()] == ["it"]
    chat = api.chat.completions.create(model="it", messages=USER, temperature=0)
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("O P Q R", "stop")
    stream = api.chat.completions.create(
        model="it", messages=USER, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "O P Q R"
    assert chunks[-1].usage.completion_tokens == chat.usage.completion_tokens == 5
    text = api.completions.create(model="it", prompt="<|go|>", temperature=0, logprobs=1)
    assert text.choices[0].text == "O P Q R"
    assert text.choices[0].logprobs.tokens == ["O", " P", " Q", " R"]
    pieces = api.completions.create(model="it", prompt="<|go|>", temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in pieces) == "O P Q R"


def test_log_probabilities_choices_and_our_own_options(client: Any) -> None:
    api = client("flat", probabilities={"a": 0.5, "b": 0.5})
    chat = api.chat.completions.create(
        model="", messages=USER, n=2, seed=1, logprobs=True, top_logprobs=2, max_completion_tokens=4
    )
    assert len(chat.choices) == 2
    for choice in chat.choices:
        assert "".join(entry.token for entry in choice.logprobs.content) == choice.message.content
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    own = api.chat.completions.create(model="", messages=USER, extra_body={"regex": "ba{3}b"}, seed=2)
    assert own.choices[0].message.content == "baaab"


def test_errors_are_the_clients_own(client: Any) -> None:
    api = client(context_length=32)
    with pytest.raises(openai.BadRequestError) as bad:
        api.chat.completions.create(model="", messages=USER, temperature=-1)
    assert (bad.value.param, bad.value.code) == ("temperature", "invalid_option")
    with pytest.raises(openai.NotFoundError):
        api.chat.completions.create(model="nobody", messages=USER)
    with pytest.raises(openai.BadRequestError, match="32"):
        api.chat.completions.create(model="", messages=[{"role": "user", "content": "x" * 99}], stream=True)


def test_parse_gives_objects(client: Any) -> None:
    """Every token is as likely as another: only the schema makes an object of them."""
    api = client("flat")
    chat = api.chat.completions.parse(model="", messages=USER, response_format=Place, seed=1, max_tokens=200)
    assert isinstance(chat.choices[0].message.parsed, Place)
    with pytest.raises(openai.LengthFinishReasonError):
        api.chat.completions.parse(model="", messages=USER, response_format=Place, seed=1, max_tokens=3)
    with api.chat.completions.stream(model="", messages=USER, response_format=Place, seed=1, max_tokens=200) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_completion().choices[0].message.parsed == chat.choices[0].message.parsed
    assert {"chunk", "content.delta", "content.done"} <= kinds


def test_tools_are_called_and_their_results_go_on(client: Any) -> None:
    """One turn of an agent: a call, its arguments parsed, its result sent back."""
    api = client("flat", chat_template=TEMPLATE, edit=with_tools, context_length=2048)
    asked: dict[str, Any] = {"model": "", "tools": [WEATHER], "parallel_tool_calls": False, "max_tokens": 300}
    chat = api.chat.completions.parse(messages=USER, tool_choice="required", seed=3, **asked)
    message = chat.choices[0].message
    (call,) = message.tool_calls
    assert chat.choices[0].finish_reason == "tool_calls"
    assert isinstance(call.function.parsed_arguments, Place)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    after = api.chat.completions.create(
        messages=[*USER, message, result], tool_choice="none", seed=4, **{**asked, "max_tokens": 8}
    )
    assert after.choices[0].message.tool_calls is None
    with api.chat.completions.stream(messages=USER, tool_choice="required", seed=3, **asked) as stream:
        deltas = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion().choices[0].message
    assert len(deltas) > 5
    assert final.tool_calls[0].function.arguments == call.function.arguments


def test_a_call_that_was_no_call_reaches_no_client(client: Any) -> None:
    script = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}!}\n</tool_call>'
    api = client(script=list(script), chat_template=TEMPLATE, edit=with_tools)
    tool: Any = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    with api.chat.completions.stream(model="", messages=USER, tools=[tool], temperature=0) as stream:
        final = stream.get_final_completion().choices[0].message
    assert (final.content, final.tool_calls) == (script, None)


def test_many_clients_at_once_get_what_one_gets(live: Any, tiny: Any) -> None:
    url = live(tiny("kv"))
    contents = [f"say {index}" for index in range(12)]

    async def say(api: openai.AsyncOpenAI, content: str) -> str:
        messages: Any = [{"role": "user", "content": content}]
        stream = await api.chat.completions.create(
            model="", messages=messages, temperature=0, max_tokens=24, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def both() -> tuple[list[str], list[str]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", timeout=60, max_retries=0) as api:
            alone = [await say(api, content) for content in contents]
            return alone, await asyncio.gather(*(say(api, content) for content in contents))

    alone, together = asyncio.run(both())
    assert alone == together
    assert len(set(alone)) > 6


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case["prompt"][:20])
def test_smollm2_answers_as_the_reference(smollm2: openai.OpenAI, case: dict[str, Any]) -> None:
    messages: Any = [{"role": "user", "content": case["prompt"]}]
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": len(case["greedy_tokens"])}
    expected = case["text"].removesuffix(END)
    chat = smollm2.chat.completions.create(model="smollm2-135m", messages=messages, **asked)
    assert chat.choices[0].message.content == expected
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == len(case["prompt_tokens"])
    stream = smollm2.chat.completions.create(model="smollm2-135m", messages=messages, stream=True, **asked)
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected
    assert chunks[-1].choices[0].finish_reason == chat.choices[0].finish_reason
    text = smollm2.completions.create(model="smollm2-135m", prompt=case["prompt_tokens"], **asked)
    assert text.choices[0].text == expected
    assert text.usage is not None
    assert text.usage.prompt_tokens_details is not None
    assert text.usage.prompt_tokens_details.cached_tokens  # the chat had the same prompt


def test_smollm2_scores_texts(smollm2: openai.OpenAI) -> None:
    right, wrong = (
        smollm2.completions.create(
            model="smollm2-135m", prompt=f"The capital of France is {city}", echo=True, logprobs=0, max_tokens=0
        )
        for city in ("Paris", "Oslo")
    )
    scores = [choice.choices[0].logprobs for choice in (right, wrong)]
    assert scores[0] is not None
    assert scores[1] is not None
    assert scores[0].tokens == ["The", " capital", " of", " France", " is", " Paris"]
    assert scores[0].text_offset == [0, 3, 11, 14, 21, 24]
    assert (scores[0].token_logprobs or [])[-1] > (scores[1].token_logprobs or [])[-1]


def test_smollm2_parses_and_calls(smollm2: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "I want to spend two days in Rome. What will the weather be?"}]
    parsed = smollm2.chat.completions.parse(
        model="smollm2-135m", messages=messages, response_format=Place, temperature=0, max_tokens=100
    )
    assert isinstance(parsed.choices[0].message.parsed, Place)
    with pytest.raises(openai.BadRequestError, match="tools"):
        smollm2.chat.completions.create(model="smollm2-135m", messages=messages, tools=[WEATHER])
    with smollm2.chat.completions.stream(
        model="smollm2-tools",
        messages=messages,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=100,
    ) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].function.parsed_arguments == Place(city="Rome", days=2)

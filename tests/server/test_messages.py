"""Messages in Anthropic's shape through the official client: blocks, streams, tools, thinking, counts, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import anthropic
import httpx
import pytest

from genai_pipeline.testing import CHATML

TEMPLATE = (
    "{% if tools %}<|im_start|>tools {{ tools | length }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{% for call in message.tool_calls %}{{ call.function.name }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %}"
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
ANSWER = f"<think>Rome, then.</think>\n\nI look.\n{CALL}\n{OTHER}"
BOTH = {"tools": {"format": "json_tagged"}, "reasoning": {"open": "<think>", "close": "</think>"}}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"name": "weather", "description": "Of a city", "input_schema": CITY},
    {"name": "now", "input_schema": {"type": "object", "properties": {}}},
]
USER: list[Any] = [{"role": "user", "content": "hi"}]
GREEDY = {"temperature": 0}

Serve = Callable[..., anthropic.Anthropic]


@pytest.fixture
def serve(live: Any, tiny: Any) -> Iterator[Serve]:
    """``serve(kind, **package)``: the official client of a server of one package."""
    with ExitStack() as clients:

        def make(kind: str = "script", **package: Any) -> anthropic.Anthropic:
            url = live(tiny(kind, **package))
            return clients.enter_context(anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60))

        yield make


@pytest.fixture
def saying(serve: Serve) -> Serve:
    """``saying(answer)``: a package that says it character by character, with tools and reasoning."""

    def make(answer: str = ANSWER, **package: Any) -> anthropic.Anthropic:
        written = {"script": list(answer), "chat_template": TEMPLATE, "context_length": 1024, **package}
        return serve("script", edit=lambda metadata: metadata.update(BOTH), **written)

    return make


def ask(client: anthropic.Anthropic, **given: Any) -> Any:
    extra = {**GREEDY, **given.pop("extra_body", {})}
    return client.messages.create(**{"model": "", "max_tokens": 200, "messages": USER, **given}, extra_body=extra)


def squeezed(kinds: list[str]) -> list[str]:
    return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]


def test_a_text_is_answered(serve: Serve) -> None:
    message = ask(serve(name="it"), model="it")
    assert (message.type, message.role, message.model) == ("message", "assistant", "it")
    assert [(block.type, block.text) for block in message.content] == [("text", "O P Q R")]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert (message.usage.input_tokens, message.usage.output_tokens) == (10, 5)
    assert message.usage.cache_read_input_tokens == 0
    assert message.id.startswith("msg_")


def test_why_an_answer_ended(serve: Serve) -> None:
    client = serve()
    assert ask(client, max_tokens=2).stop_reason == "max_tokens"
    stopped = ask(client, stop_sequences=["X", "P Q"])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "P Q")
    assert stopped.content[0].text == "O "


def test_a_stop_of_the_package_is_no_stop_sequence_of_the_request(serve: Serve) -> None:
    client = serve(generation={"defaults": {"stop": [" Q"]}})
    message = ask(client)
    assert (message.stop_reason, message.stop_sequence, message.content[0].text) == ("end_turn", None, "O P")


def test_a_stream_has_all_events_in_order_and_says_the_same(serve: Serve) -> None:
    client = serve()
    events = list(ask(client, stream=True))
    assert squeezed([event.type for event in events]) == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0].message
    assert (start.content, start.stop_reason, start.usage.input_tokens) == ([], None, 10)
    assert "".join(event.delta.text for event in events if event.type == "content_block_delta") == "O P Q R"
    assert (events[-2].delta.stop_reason, events[-2].usage.output_tokens) == ("end_turn", 5)
    stopped = list(ask(client, stream=True, stop_sequences=[" Q"]))
    assert (stopped[-2].delta.stop_reason, stopped[-2].delta.stop_sequence) == ("stop_sequence", " Q")


def test_the_wire_has_names_and_a_ping(live: Any, tiny: Any, http: httpx.Client) -> None:
    body = {"messages": USER, "max_tokens": 10, "stream": True, **GREEDY}
    answer = http.post(live(tiny("script")) + "/v1/messages", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = [frame.split("\n") for frame in answer.text.strip().split("\n\n")]
    names = [lines[0].removeprefix("event: ") for lines in frames]
    assert names[:3] == ["message_start", "ping", "content_block_start"]
    assert names[-1] == "message_stop"
    assert all(f'"type":"{name}"' in lines[1] for name, lines in zip(names, frames, strict=True))


def test_the_clients_own_stream_puts_thinking_text_and_calls_together(saying: Serve) -> None:
    client = saying()
    whole = ask(client, tools=TOOLS)
    with client.messages.stream(model="", max_tokens=200, messages=USER, tools=TOOLS, extra_body=GREEDY) as events:
        kinds = [event.type for event in events if not event.type.startswith(("text", "input", "thinking"))]
        streamed = events.get_final_message()
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    thinking, text, call, other = whole.content
    assert thinking.thinking == "Rome, then."
    assert text.text.strip() == "I look."
    assert (call.name, call.input, other.name, other.input) == ("weather", {"city": "Rome"}, "now", {})
    assert (whole.stop_reason, streamed.stop_reason) == ("tool_use", "tool_use")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    strip = {"id", "parsed_output"}
    assert [{k: v for k, v in block.to_dict().items() if k not in strip} for block in streamed.content] == [
        {k: v for k, v in block.to_dict().items() if k not in strip} for block in whole.content
    ]


def test_a_call_that_is_due_streams_its_input(saying: Serve) -> None:
    client = saying(CALL)
    events = list(ask(client, stream=True, tools=TOOLS, tool_choice={"type": "tool", "name": "weather"}))
    pieces = [event.delta.partial_json for event in events if event.type == "content_block_delta"]
    assert len(pieces) > 3
    assert "".join(pieces) == '{"city": "Rome"}'
    forced = ask(client, tools=TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert [block.type for block in forced.content] == ["tool_use"]
    none = ask(client, tools=TOOLS, tool_choice={"type": "none"})
    assert [(block.type, block.text) for block in none.content] == [("text", CALL)]


def test_results_and_thinking_go_back(saying: Serve) -> None:
    client = saying()
    asked = ask(client, tools=TOOLS)
    calls = [block for block in asked.content if block.type == "tool_use"]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": calls[0].id, "content": [{"type": "text", "text": "sunny"}]},
        {"type": "tool_result", "tool_use_id": calls[1].id, "content": "noon", "is_error": True},
        {"type": "text", "text": "and?"},
    ]
    messages = [*USER, {"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
    assert ask(client, tools=TOOLS, messages=messages).usage.input_tokens > asked.usage.input_tokens
    with pytest.raises(anthropic.BadRequestError, match="names no call"):
        ask(client, tools=TOOLS, messages=[{"role": "user", "content": results}])


def test_blocks_are_the_conversation_that_a_chat_has(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("kv", context_length=1024))
    options = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    parts = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}]
    talk: list[Any] = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "e"}]},
    ]
    body = {"system": [{"type": "text", "text": "be good"}], "messages": talk, **options}
    message = http.post(f"{url}/v1/messages", json=body).json()
    chat: list[Any] = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}]},
    ]
    wanted = http.post(f"{url}/v1/chat/completions", json={"messages": chat, **options}).json()
    assert message["content"][0]["text"] == wanted["choices"][0]["message"]["content"]
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == wanted["usage"]["prompt_tokens"]
    counted = http.post(f"{url}/v1/messages/count_tokens", json={name: body[name] for name in ("system", "messages")})
    assert counted.json() == {"input_tokens": wanted["usage"]["prompt_tokens"]}


def test_tokens_are_counted_with_tools_and_without_an_answer(saying: Serve) -> None:
    client = saying()
    plain = client.messages.count_tokens(model="", messages=USER).input_tokens
    tools = client.messages.count_tokens(model="", messages=USER, tools=TOOLS).input_tokens
    assert plain < tools
    assert ask(client, tools=TOOLS).usage.input_tokens == tools


def test_thinking_is_switched_and_bounded(saying: Serve, serve: Serve) -> None:
    client = saying()
    cut = ask(client, thinking={"type": "enabled", "budget_tokens": 4})
    assert cut.content[0].type == "thinking"
    assert len(cut.content[0].thinking) < len("Rome, then.")
    off = client.messages.count_tokens(model="", messages=USER, thinking={"type": "disabled"}).input_tokens
    assert off > client.messages.count_tokens(model="", messages=USER, thinking={"type": "adaptive"}).input_tokens
    plain = serve(chat_template=CHATML)
    assert ask(plain, thinking={"type": "disabled"}).content[0].text == "O P Q R"
    with pytest.raises(anthropic.BadRequestError, match=r"thinking\.budget_tokens"):
        ask(plain, thinking={"type": "enabled", "budget_tokens": 1024})


def test_answers_follow_a_schema(serve: Serve) -> None:
    client = serve(script=list('{"city": "Ulm"}'))
    message = ask(client, output_config={"format": {"type": "json_schema", "schema": CITY}})
    assert message.content[0].text == '{"city": "Ulm"}'


def test_an_answer_of_nothing_is_an_empty_block(serve: Serve) -> None:
    assert [(block.type, block.text) for block in ask(serve(script=["</s>"])).content] == [("text", "")]


def test_several_streams_at_once(live: Any, tiny: Any) -> None:
    url = live(tiny("script"))

    async def one(client: anthropic.AsyncAnthropic) -> str:
        async with client.messages.stream(model="", max_tokens=20, messages=USER, extra_body=GREEDY) as events:
            return "".join([text async for text in events.text_stream])

    async def all_at_once() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
            return await asyncio.gather(*(one(client) for _ in range(8)))

    assert asyncio.run(all_at_once()) == ["O P Q R"] * 8


BLOCK = "messages[0].content[0]"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**6}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [*USER, {"role": "assistant", "content": "Well"}]}, "messages[1]"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, f"{BLOCK}.type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, f"{BLOCK}.text"),
    (
        {
            "system": "x",
            "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "u"}}]}],
        },
        "messages[0]",
    ),
    ({"system": [{"type": "image", "source": {"type": "url", "url": "u"}}]}, "system"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tools": [{"name": "f", "input_schema": {"type": "string"}}]}, "tools[0].input_schema.type"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"speed": "fast"}, "speed"),
    ({"thinking": {"type": "adaptive", "display": "omitted"}}, "thinking.display"),
    ({"output_config": {"effort": "high"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}}, "'not'"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"),
    ({"stop": ["x"]}, "stop_sequences"),
    ({"temperature": -1}, "temperature"),
    ({"stream": "true"}, "stream"),
]


def test_what_is_not_supported_is_refused_by_name(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script")) + "/v1/messages"
    body = {"messages": USER, "max_tokens": 10}
    for change, named in REFUSED:
        answer = http.post(url, json={**body, **change})
        assert answer.status_code == 400, (change, answer.text)
        told = answer.json()
        assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
        assert named in told["error"]["message"], told
    assert http.post(url, json=body).json()["type"] == "message"


def test_errors_have_the_interfaces_shape(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script")) + "/v1/messages"
    unknown = http.post(url, json={"model": "other", "messages": USER, "max_tokens": 5})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    broken = http.post(url, content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")
    late = http.post(url, json={"messages": USER, "max_tokens": 5, "timeout": 1e-6})
    assert (late.status_code, late.json()["error"]["type"]) == (408, "timeout_error")

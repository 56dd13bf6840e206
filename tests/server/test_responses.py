"""Responses through the official client: items in and out, streams, tools, structure, stored conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import openai
import pydantic
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import GraphRunError
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.callers import ApiKey
from genai_pipeline.server.openai.responses_object import ResponseObject
from genai_pipeline.server.openai.responses_request import read_request
from genai_pipeline.server.openai.responses_store import ResponseStore
from genai_pipeline.testing import TinyPackage
from genai_pipeline.types import Event

TEMPLATE = (
    "{% if tools %}<|im_start|>tools {{ tools | length }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{% for call in message.tool_calls %}{{ call.function.name }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
ANSWER = f"<think>Rome, then.</think>\n\nI look.\n{CALL}\n{OTHER}"
BOTH = {"tools": {"format": "json_tagged"}, "reasoning": {"open": "<think>", "close": "</think>"}}
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW = {"type": "function", "name": "now"}
MESSAGE_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
CALL_EVENTS = [
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
]
REASONING_EVENTS = [
    "response.output_item.added",
    "response.content_part.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.content_part.done",
    "response.output_item.done",
]

Ask = dict[str, Any]


@pytest.fixture
def client() -> Iterator[Callable[..., openai.OpenAI]]:
    """``client(url, key)``: the official client of a server."""
    with ExitStack() as clients:
        yield lambda url, key="none": clients.enter_context(
            openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60)
        )


@pytest.fixture
def serve(live: Any, tiny: Any, client: Any) -> Callable[..., openai.OpenAI]:
    """``serve(kind, **package)``: the client of a server of one package."""

    def make(kind: str = "script", *, config: dict[str, Any] | None = None, **package: Any) -> openai.OpenAI:
        return client(live(tiny(kind, **package), **(config or {})))

    return make


@pytest.fixture
def saying(serve: Any) -> Callable[..., openai.OpenAI]:
    """``saying(answer)``: a package that says it character by character, with tools and reasoning."""

    def make(answer: str = ANSWER, **package: Any) -> openai.OpenAI:
        written = {"script": list(answer), "chat_template": TEMPLATE, "context_length": 1024, **package}
        return serve("script", edit=lambda metadata: metadata.update(BOTH), **written)

    return make


def squeezed(kinds: list[str]) -> list[str]:
    """The kinds of events with runs of one kind as one."""
    return [kind for index, kind in enumerate(kinds) if index == 0 or kinds[index - 1] != kind]


def plain(item: Any) -> dict[str, Any]:
    """An item without its id and what the client adds."""
    return {name: value for name, value in item.to_dict().items() if name not in ("id", "status", "parsed_arguments")}


def stream(client: openai.OpenAI, **ask: Any) -> list[Any]:
    return list(client.responses.create(model="", stream=True, temperature=0, **ask))


def test_a_text_is_answered(serve: Any) -> None:
    response = serve(name="it").responses.create(model="it", input="hi", temperature=0, metadata={"a": "b"})
    assert (response.object, response.status, response.model) == ("response", "completed", "it")
    assert response.output_text == "O P Q R"
    assert response.id.startswith("resp_")
    (message,) = response.output
    assert (message.role, message.status, message.type) == ("assistant", "completed", "message")
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (10, 5, 15)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (0, 0)
    assert (response.temperature, response.metadata, response.error) == (0, {"a": "b"}, None)
    assert response.completed_at >= response.created_at


def test_a_stream_has_all_events_in_order_and_says_the_same(serve: Any) -> None:
    client = serve()
    whole = client.responses.create(model="", input="hi", temperature=0)
    events = stream(client, input="hi")
    kinds = [event.type for event in events]
    assert squeezed(kinds) == ["response.created", "response.in_progress", *MESSAGE_EVENTS, "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "O P Q R"
    assert events[0].response.status == "in_progress"
    assert events[0].response.output == []
    last = events[-1].response
    assert [plain(item) for item in last.output] == [plain(item) for item in whole.output]
    assert last.id == events[0].response.id
    assert {event.item_id for event in events if hasattr(event, "item_id")} == {last.output[0].id}


def test_the_clients_own_stream_puts_it_together(serve: Any) -> None:
    with serve().responses.stream(model="", input="hi", temperature=0) as events:
        snapshots = [event.snapshot for event in events if event.type == "response.output_text.delta"]
        assert snapshots[-1] == "O P Q R"
        assert events.get_final_response().output_text == "O P Q R"


def test_a_limit_leaves_the_response_incomplete(serve: Any) -> None:
    client = serve()
    response = client.responses.create(model="", input="hi", temperature=0, max_output_tokens=2)
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (response.output_text, response.output[0].status) == ("O P", "incomplete")
    events = stream(client, input="hi", max_output_tokens=2)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == "O P"
    assert events[-2].item.status == "incomplete"


def test_an_answer_of_nothing_is_an_empty_message(serve: Any) -> None:
    client = serve(script=["</s>"])
    assert [item.type for item in client.responses.create(model="", input="hi", temperature=0).output] == ["message"]
    assert "response.output_text.done" in [event.type for event in stream(client, input="hi")]


def test_items_are_the_conversation_that_a_chat_has(serve: Any) -> None:
    client = serve("kv", context_length=1024)
    ask: Ask = {"temperature": 0, "extra_body": {"ignore_eos": True}}
    items: list[Any] = [
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]},
        {"role": "user", "content": "d"},
    ]
    messages: list[Any] = [
        {"role": "system", "content": "be good"},
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    response = client.responses.create(model="", input=items, instructions="be good", max_output_tokens=12, **ask)
    chat = client.chat.completions.create(model="", messages=messages, max_completion_tokens=12, **ask)
    assert response.output_text == chat.choices[0].message.content
    assert response.usage.input_tokens == chat.usage.prompt_tokens


def test_a_conversation_goes_on_from_a_stored_response(serve: Any) -> None:
    client = serve("kv", context_length=1024)
    ask: Ask = {"temperature": 0, "max_output_tokens": 8, "extra_body": {"ignore_eos": True}}
    first = client.responses.create(model="", input="one", instructions="not carried over", **ask)
    second = client.responses.create(model="", input="two", previous_response_id=first.id, **ask)
    third = client.responses.create(model="", input="three", previous_response_id=second.id, **ask)
    items: list[Any] = [{"role": "user", "content": "one"}, *(item.to_dict() for item in first.output)]
    items += [{"role": "user", "content": "two"}, *(item.to_dict() for item in second.output)]
    items += [{"role": "user", "content": "three"}]
    whole = client.responses.create(model="", input=items, store=False, **ask)
    assert third.output_text == whole.output_text
    assert third.usage.input_tokens == whole.usage.input_tokens
    assert third.previous_response_id == second.id
    assert third.usage.input_tokens_details.cached_tokens > 0
    listed = client.responses.input_items.list(third.id, order="asc", limit=2)
    assert [item.id for item in listed] == [item.id for item in client.responses.input_items.list(third.id)][::-1]
    assert len(list(client.responses.input_items.list(third.id))) == 5


def test_reasoning_text_and_calls_are_items_in_order(saying: Any) -> None:
    client = saying()
    response = client.responses.create(model="", input="hi", temperature=0, tools=[WEATHER, NOW])
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    thought, text, call, other = response.output
    assert thought.content[0].text == "Rome, then."
    assert text.content[0].text.strip() == "I look."
    assert (call.name, call.arguments) == ("weather", '{"city": "Rome"}')
    assert (other.name, other.arguments) == ("now", "{}")
    assert call.call_id != other.call_id
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens
    events = stream(client, input="hi", tools=[WEATHER, NOW])
    items = [*REASONING_EVENTS, *MESSAGE_EVENTS, *CALL_EVENTS, *CALL_EVENTS]
    assert squeezed([event.type for event in events[2:-1]]) == items
    for event in events[2:-1]:
        assert event.output_index in range(4)
    last = events[-1].response
    strip = ("call_id",)
    assert [{k: v for k, v in plain(item).items() if k not in strip} for item in last.output] == [
        {k: v for k, v in plain(item).items() if k not in strip} for item in response.output
    ]


def test_a_call_that_is_due_streams_its_arguments(saying: Any) -> None:
    client = saying(CALL)
    strict = {**WEATHER, "strict": True}
    with client.responses.stream(
        model="", input="hi", temperature=0, tools=[strict], tool_choice={"type": "function", "name": "weather"}
    ) as events:
        deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        (call,) = events.get_final_response().output
    assert len(deltas) > 3
    assert "".join(deltas) == call.arguments
    assert call.parsed_arguments == {"city": "Rome"}


def test_results_of_calls_go_back_as_items(saying: Any) -> None:
    client = saying()
    asked = client.responses.create(model="", input="hi", temperature=0, tools=[WEATHER, NOW])
    calls = [item for item in asked.output if item.type == "function_call"]
    results: list[Any] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"result {index}"}
        for index, call in enumerate(calls)
    ]
    ask: Ask = {"temperature": 0, "tools": [WEATHER, NOW], "model": ""}
    stored = client.responses.create(input=results, previous_response_id=asked.id, **ask)
    items = [{"role": "user", "content": "hi"}, *(item.to_dict() for item in asked.output), *results]
    sent = client.responses.create(input=items, **ask)
    assert stored.usage.input_tokens == sent.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="names no call") as caught:
        client.responses.create(input=results, **ask)
    assert caught.value.param == "input[0].call_id"


@pytest.mark.parametrize("choice", ["none", {"type": "allowed_tools", "mode": "auto", "tools": [NOW]}])
def test_a_tool_that_may_not_be_called_is_not(saying: Any, choice: Any) -> None:
    response = saying(CALL).responses.create(
        model="", input="hi", temperature=0, tools=[WEATHER, NOW], tool_choice=choice
    )
    assert [item.type for item in response.output] == ["message"]
    assert response.output_text == CALL


class Person(pydantic.BaseModel):
    name: str
    age: int


def test_answers_are_parsed(serve: Any) -> None:
    client = serve(script=list('{"name": "Bo", "age": 5}'))
    parsed = client.responses.parse(model="", input="hi", temperature=0, text_format=Person)
    assert parsed.output_parsed == Person(name="Bo", age=5)
    assert parsed.text.format.type == "json_schema"
    with client.responses.stream(model="", input="hi", temperature=0, text_format=Person) as events:
        assert events.get_final_response().output_parsed == Person(name="Bo", age=5)
    loose = client.responses.create(model="", input="hi", temperature=0, text={"format": {"type": "json_object"}})
    assert loose.output_text.startswith("{")


def test_log_probabilities_come_when_included(serve: Any) -> None:
    client = serve()
    include: Any = ["message.output_text.logprobs"]
    response = client.responses.create(model="", input="hi", temperature=0, include=include, top_logprobs=2)
    scores = response.output[0].content[0].logprobs
    assert [score.token for score in scores] == ["O", " P", " Q", " R"]
    assert all(len(score.top_logprobs) == 2 for score in scores)
    events = stream(client, input="hi", include=include, top_logprobs=2)
    streamed = [score for event in events if event.type == "response.output_text.delta" for score in event.logprobs]
    assert [score.token for score in streamed] == ["O", " P", " Q", " R"]
    assert client.responses.create(model="", input="hi").output[0].content[0].logprobs == []


def test_stored_responses_belong_to_their_key(live: Any, tiny: Any, client: Any) -> None:
    url = live(tiny("script"), keys=(ApiKey.of("one", "first"), ApiKey.of("two", "second")))
    mine, theirs = client(url, "first"), client(url, "second")
    made = mine.responses.create(model="", input="hi", temperature=0)
    assert mine.responses.retrieve(made.id).to_dict() == made.to_dict()
    for call in (
        lambda: theirs.responses.retrieve(made.id),
        lambda: theirs.responses.delete(made.id),
        lambda: theirs.responses.create(model="", input="x", previous_response_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            call()
    mine.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        mine.responses.retrieve(made.id)
    kept = mine.responses.create(model="", input="hi", temperature=0, store=False)
    with pytest.raises(openai.NotFoundError):
        mine.responses.retrieve(kept.id)
    with pytest.raises(openai.BadRequestError, match="background"):
        mine.responses.cancel(mine.responses.create(model="", input="hi", max_output_tokens=1).id)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"truncation": "auto"}, "truncation"),
    ({"context_management": [{}]}, "context_management"),
    ({"text": {"verbosity": "high"}}, "text.verbosity"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}}, "text.format"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ({"include": ["file_search_call.results"]}, "include[0]"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"service_tier": "ultrafast"}, "service_tier"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "name": "f", "parameters": {"type": "string"}}]}, "tools[0].parameters.type"),
    ({"tools": [NOW], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"max_tokens": 5}, "max_tokens"),
    ({"n": 2}, "n"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": 10**6}, "max_output_tokens"),
    ({"temperature": "hot"}, "temperature"),
    ({"stream": "true"}, "stream"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
    ({"input": [{"role": "narrator", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
    ({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{"}]}, "input[0].arguments"),
    (
        {"instructions": "x", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}]},
        "input[0]",
    ),
]


def test_what_is_not_supported_is_refused_by_name(live: Any, tiny: Any, http: httpx.Client) -> None:
    url = live(tiny("script")) + "/v1/responses"
    for change, param in REFUSED:
        answer = http.post(url, json={"input": "hi", **change})
        assert answer.status_code == 400, (change, answer.text)
        error = answer.json()["error"]
        assert error["param"] == param, change
    assert http.post(url, json={"input": "hi"}).json()["status"] == "completed"
    assert http.post(url, json={"input": "hi", "model": "other"}).status_code == 404


def test_fields_that_change_nothing_are_taken(serve: Any) -> None:
    response = serve().responses.create(
        model="",
        input="hi",
        temperature=0,
        max_tool_calls=3,
        prompt_cache_key="k",
        safety_identifier="s",
        truncation="disabled",
        service_tier="flex",
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
        text={"verbosity": "medium"},
        extra_body={"whatever": 1},
    )
    assert (response.output_text, response.service_tier) == ("O P Q R", "flex")


def test_an_error_under_way_is_the_last_event(tiny: Any) -> None:
    package: TinyPackage = tiny("script")
    with gp.load(package.path) as pipe:
        made = ResponseObject(read_request({"input": "hi"}), "it", pipe)
        events = [*made.begin(), *made.add(Event(token=5, text="O"))]
        events += made.add(Event(finish_reason="error", error=GraphRunError("secrets inside")))
        events.append(made.end())
    assert events[-1]["type"] == "response.failed"
    response = events[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert "secrets" not in response["error"]["message"]
    assert response["output"][0]["status"] == "incomplete"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_the_store_is_bounded_in_number_bytes_and_time() -> None:
    now = 0.0
    store = ResponseStore(most=3, nbytes=100, seconds=10, clock=lambda: now)
    for index in range(5):
        store.put("me", {"id": f"r{index}"}, (), 0, 10)
    assert len(store) == 3
    with pytest.raises(ApiError, match="r1"):
        store.get("me", "r1")
    store.put("me", {"id": "large"}, (), 0, 95)
    assert len(store) == 1
    now = 9.0
    store.put("me", {"id": "late"}, (), 0, 1)
    now = 11.0
    with pytest.raises(ApiError):
        store.get("me", "large")
    assert store.get("me", "late").response == {"id": "late"}
    store.put("me", {"id": "beyond"}, (), 0, 101)
    assert len(store) == 0

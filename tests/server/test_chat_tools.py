"""Tool calls in chat completions: what a client gets of a call is never taken back, and never wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

USER = [{"role": "user", "content": "hi"}]
PATH = "/v1/chat/completions"
TEMPLATE = (
    "{% if tools %}tools:{{ tools | length }};{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SCHEMA = {
    "type": "object",
    "properties": {"x": {"enum": ["aaaaaaaa", "bbbbbbbb"]}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "now", "parameters": SCHEMA}}
STRICT = {"type": "function", "function": {"name": "now", "parameters": SCHEMA, "strict": True}}
CALL = '<tool_call>\n{"name": "now", "arguments": {"x": "aaaaaaaa"}}\n</tool_call>'

Say = Callable[..., httpx.Response]


@pytest.fixture
def tools(live: Any, tiny: Any, http: httpx.Client) -> Callable[..., Say]:
    """``tools(script)``: a model that writes the script and knows tools, asked by ``say(**body)``; greedy."""

    def serve(script: str = CALL, kind: str = "script", **package: Any) -> Say:
        def edit(metadata: dict[str, Any]) -> None:
            metadata["tools"] = {"format": "json_tagged"}

        words = re.findall("tool|.", script, re.DOTALL)  # as the tokenizer splits the text that a grammar forces
        options = {"script": words} if kind == "script" else {}
        url = live(tiny(kind, chat_template=TEMPLATE, edit=edit, **options, **package))
        return lambda **body: http.post(url + PATH, json={"messages": USER, "temperature": 0, **body})

    return serve


Told = tuple[str, list[tuple[str, str]], str | None]


def whole(response: httpx.Response) -> Told:
    """Text, calls and finish reason of an answer."""
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    calls = choice["message"].get("tool_calls", [])
    assert all(call["type"] == "function" and call["id"] for call in calls)
    assert (choice["message"]["content"] is None) == (bool(calls) and not choice["message"]["content"])
    named = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    return choice["message"]["content"] or "", named, choice["finish_reason"]


def deltas(response: httpx.Response) -> list[dict[str, Any]]:
    frames = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert frames[-1] == "[DONE]"
    return [choice for frame in frames[:-1] for choice in json.loads(frame)["choices"]]


def told(response: httpx.Response) -> Told:
    """The same of a stream, put together as clients do."""
    text, reason = "", None
    calls: list[list[str]] = []
    for choice in deltas(response):
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            if call["index"] == len(calls):
                assert call["id"]
                assert call["type"] == "function"
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
        if choice["finish_reason"] is not None:
            assert reason is None
            reason = choice["finish_reason"]
    return text, [(name, arguments) for name, arguments in calls], reason


BROKEN = CALL.replace("}}", "}!}")  # found out when all of the arguments are there
ARGUMENTS = '{"x": "aaaaaaaa"}'


@pytest.mark.parametrize(
    ("script", "body", "expected"),
    [
        (CALL, {}, ("", [("now", ARGUMENTS)], "tool_calls")),
        (f"I look.\n{CALL}", {}, ("I look.", [("now", ARGUMENTS)], "tool_calls")),
        (f"{CALL}\n{CALL}", {}, ("", [("now", ARGUMENTS)] * 2, "tool_calls")),
        (f"{CALL}\n{CALL}", {"parallel_tool_calls": False}, ("", [("now", ARGUMENTS)], "tool_calls")),
        (f"{CALL} Done.", {}, ("Done.", [("now", ARGUMENTS)], "tool_calls")),
        (CALL[:-20], {}, (CALL[:-20], [], "stop")),
        (BROKEN, {}, (BROKEN, [], "stop")),
        (f"{BROKEN}\n{CALL}", {}, (BROKEN, [("now", ARGUMENTS)], "tool_calls")),
        (CALL, {"max_tokens": len(CALL) - 23}, (CALL[:-20], [], "length")),
        (CALL, {"stop": ["bbbb", "aaaaaaa"]}, (CALL[: CALL.index("aaaa")], [], "stop")),
        (CALL.replace("now", "then"), {}, (CALL.replace("now", "then"), [], "stop")),
    ],
)
def test_calls_are_whole_or_none_streamed_and_not(tools: Any, script: str, body: Any, expected: Told) -> None:
    say = tools(script)
    assert whole(say(tools=[TOOL], **body)) == expected
    assert told(say(tools=[TOOL], stream=True, **body)) == expected


@pytest.mark.parametrize("given", [{}, {"tools": []}, {"tools": [TOOL]}])
def test_with_choice_none_nothing_is_a_call(tools: Any, given: dict[str, Any]) -> None:
    """B38: plain text, and the model is not shown the tools."""
    say = tools()
    response = say(tool_choice="none", **given)
    assert whole(response) == (CALL, [], "stop")
    assert "tool_calls" not in response.text
    assert told(say(tool_choice="none", stream=True, **given)) == (CALL, [], "stop")
    assert response.json()["usage"]["prompt_tokens"] == 10


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "now"}}},
    ],
)
def test_calls_that_are_due_follow_their_schema_and_stream_as_they_are_made(tools: Any, body: dict[str, Any]) -> None:
    """Every token is as likely as another: only the grammar makes the call."""
    say = tools(kind="flat")
    asked = {**body, "parallel_tool_calls": False, "temperature": 1, "seed": 7, "max_tokens": 120}
    text, calls, reason = whole(say(**asked))
    assert (text, reason) == ("", "tool_calls")
    ((name, arguments),) = calls
    assert name == "now"
    assert json.loads(arguments)["x"] in SCHEMA["properties"]["x"]["enum"]
    stream = say(stream=True, **asked)
    assert told(stream) == (text, calls, reason)
    pieces = [call for choice in deltas(stream) for call in choice["delta"].get("tool_calls", [])]
    assert len(pieces) > 5


def test_a_call_that_is_due_and_cut_by_the_length_ends_there(tools: Any) -> None:
    say = tools(kind="flat")
    asked = {"tools": [TOOL], "tool_choice": "required", "temperature": 1, "seed": 7}
    _, ((_, entire), *_), _ = whole(say(parallel_tool_calls=False, max_tokens=120, **asked))
    cuts = 0
    for limit in range(1, 60, 3):
        text, calls, reason = whole(say(max_tokens=limit, **asked))
        assert told(say(max_tokens=limit, stream=True, **asked)) == (text, calls, reason)
        assert reason in ("length", "tool_calls")
        if calls:
            assert text == ""
            assert entire.startswith(calls[0][1]) or calls[0][1].startswith(entire)
            cuts += reason == "length" and calls[0][1] != entire
    assert cuts > 2


def test_strict_tools_leave_text_free(tools: Any) -> None:
    say = tools(f"I look.\n{CALL}")
    assert whole(say(tools=[STRICT])) == ("I look.", [("now", ARGUMENTS)], "tool_calls")
    stream = say(tools=[STRICT], stream=True)
    assert told(stream) == ("I look.", [("now", ARGUMENTS)], "tool_calls")
    pieces = [call for choice in deltas(stream) for call in choice["delta"].get("tool_calls", [])]
    assert len(pieces) > 5


def test_tools_that_are_not_allowed_are_not_offered(tools: Any) -> None:
    say = tools()
    other = {"type": "function", "function": {"name": "then", "parameters": SCHEMA}}

    def allowed(*names: str, mode: str = "auto") -> dict[str, Any]:
        listed = [{"type": "function", "function": {"name": name}} for name in names]
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}

    alone = say(tools=[TOOL])
    narrowed = say(tools=[TOOL, other], tool_choice=allowed("now"))
    assert whole(narrowed) == whole(alone)
    assert narrowed.json()["usage"]["prompt_tokens"] == alone.json()["usage"]["prompt_tokens"]
    assert whole(say(tools=[TOOL, other], tool_choice=allowed("then")))[1] == []
    assert whole(say(tools=[TOOL, other], tool_choice=allowed("now", mode="required")))[1] == [("now", ARGUMENTS)]
    for wrong in (allowed("never"), allowed("now", mode="none"), {"type": "allowed_tools"}):
        response = say(tools=[TOOL], tool_choice=wrong)
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith("tool_choice.allowed_tools")


def test_choices_have_calls_of_their_own(tools: Any) -> None:
    say = tools()
    choices = say(tools=[TOOL], n=2).json()["choices"]
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in choices]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "then"}}}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "no name"}}]}, "tools[0].function.name"),
        ({"tools": [TOOL, TOOL]}, "tools[1]"),
        ({"tools": {}}, "tools"),
        ({"tools": [3]}, "tools[0]"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_tools_that_cannot_be_are_refused_by_name(tools: Any, body: dict[str, Any], param: str) -> None:
    response = tools()(**{"tools": [TOOL], **body})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param

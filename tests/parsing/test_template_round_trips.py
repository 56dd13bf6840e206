"""Calls that chat templates write into a conversation are the calls that the parsers read out of an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genai_pipeline.parsing.registry import FORMATS
from genai_pipeline.preprocess.chat_template import ChatProgram

TEMPLATES = Path(__file__).parent / "templates"
ASK = {"role": "user", "content": "And now?"}
WEATHER = {
    "city": "Zürich \"Altstadt\" \\ 'x'\n👩‍👩‍👧",
    "days": 3,
    "metric": False,
    "tags": ["a,b", "]", "{"],
    "more": {"n": {"k": [1.5, None]}},
}
CONVERSATIONS = {
    "one": [("get_weather", WEATHER)],
    "bare": [("now", {})],
    "two": [("get_weather", {"city": ""}), ("any_of_it", {"a": -1, "b": True, "c": "x = (1, 2)"})],
}


def answer_of(format: str, calls: list, text: str) -> str:
    """What the template writes for an answer with calls, up to the token that ends it."""
    program = ChatProgram((TEMPLATES / f"{format}.jinja").read_text())
    written = [{"id": "abcde0123", "type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    message = {"role": "assistant", "content": text, "tool_calls": written}
    given = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "add_generation_prompt": False}
    before = str(program.render({**given, "messages": [ASK]}))
    whole = str(program.render({**given, "messages": [ASK, message]}))
    answer = whole.removeprefix(before)
    for head in (
        "<|im_start|>assistant\n",
        "<|start_header|>assistant<|end_header|>\n\n",
        "<|header|>assistant<|body|>\n\n",
    ):
        answer = answer.removeprefix(head)
    for end in ("<|im_end|>\n", "</s>", "<|eot|>"):
        answer = answer.removesuffix(end)
    return answer


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("format", FORMATS)
def test_what_a_template_writes_is_read_again(parse, format, name):
    calls = CONVERSATIONS[name]
    if format == "llama_python_tag":
        calls = calls[:1]  # all that such templates take
    says = "I look it up." if format in ("json_tagged", "xml_tagged") else ""
    answer = answer_of(format, calls, says)
    for pieces in ([answer], list(answer)):
        text, found = parse(format, pieces)
        assert text == says
        assert [(name, json.loads(arguments)) for name, arguments in found] == calls


@pytest.mark.parametrize("format", FORMATS)
def test_such_templates_are_seen_to_take_tools(format):
    assert "tools" in ChatProgram((TEMPLATES / f"{format}.jinja").read_text()).variables

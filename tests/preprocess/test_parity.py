"""Templates render byte for byte as transformers renders them, and encode to the ids it gives."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import Any

import pytest
import transformers.utils.chat_template_utils as reference
from transformers import PreTrainedTokenizerFast

from genai_pipeline.errors import TemplateError
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.template_source import TemplateSource
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location

TEMPLATES = Path(__file__).parent / "templates"
NOW = datetime.datetime(2025, 3, 9, 17, 5, 42)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.\nIn <b>short</b> & 'plain' words.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "int"}}},
            "required": ["city"],
        },
    },
}
NOTHING = {"type": "object", "properties": {}, "required": []}
CLOCK = {"type": "function", "function": {"name": "now", "description": "Zeit — 時刻", "parameters": NOTHING}}
ARGUMENTS = {"city": "Zürich", "days": [1, 2]}
CALL = {"id": "abcde1234", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}

SYSTEM = {"role": "system", "content": "  Be brief & kind.\n"}
HELLO = {"role": "user", "content": "Hello, world! "}
ANSWER = {"role": "assistant", "content": "Hi there.\nHow are you?"}
UNICODE = {
    "role": "user",
    "content": "Füße 👩‍👩‍👧 안녕하세요 Привет \u00a0 ﷽ \u200b\ttab\r\nline 'quote' \"double\" <b>&amp;",
}
TOOL_TURNS = [
    HELLO,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sun": true}', "tool_call_id": "abcde1234", "name": "get_weather"},
]
THOUGHT = {"role": "assistant", "content": "<think>\nHmm, 2 + 2.\n</think>\n\nFour."}
REASONED = {"role": "assistant", "content": "Four.", "reasoning_content": "\n2 + 2 = 4\n"}

DOCUMENTS = [{"title": "Füße", "text": "Two.\nThree."}, {"title": "B", "text": ""}]

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one": {"messages": [HELLO]},
    "system": {"messages": [SYSTEM, HELLO]},
    "turns": {"messages": [HELLO, ANSWER, UNICODE]},
    "closed": {"messages": [HELLO, ANSWER], "add_generation_prompt": False},
    "unicode": {"messages": [SYSTEM, UNICODE]},
    "tools": {"messages": [SYSTEM, HELLO], "tools": [WEATHER, CLOCK]},
    "called": {"messages": TOOL_TURNS, "tools": [WEATHER]},
    "called_on": {"messages": [*TOOL_TURNS, {"role": "assistant", "content": "Sunny."}, HELLO], "tools": [WEATHER]},
    "thought": {"messages": [HELLO, THOUGHT, UNICODE]},
    "reasoned": {"messages": [HELLO, REASONED]},
    "no_thinking": {"messages": [HELLO], "enable_thinking": False},
    "dated": {"messages": [HELLO], "date_string": "1 Apr 2030"},
    "documents": {"messages": [HELLO], "documents": DOCUMENTS},
    "long": {"messages": [SYSTEM, HELLO, ANSWER, UNICODE, THOUGHT, HELLO, REASONED, HELLO]},
    "developer": {"messages": [{"role": "developer", "content": "x"}, HELLO, ANSWER, HELLO]},
}

TAKES: dict[str, tuple[str, ...]] = {
    "chatml": ("one", "system", "turns", "closed", "unicode", "thought"),
    "chatml_default_system": ("one", "system", "turns", "long", "developer"),
    "dated_tools": ("one", "system", "turns", "tools", "called", "called_on", "dated", "unicode"),
    "bracketed": ("one", "system", "turns", "closed", "tools", "called", "called_on"),
    "no_system": ("one", "turns", "closed"),
    "reasoning": ("one", "system", "tools", "called", "called_on", "thought", "reasoned", "no_thinking", "long"),
    "accumulated": ("one", "system", "turns", "called", "called_on", "thought", "long"),
    "built_tokens": ("one", "system", "tools", "closed", "unicode"),
    "documents": ("one", "system", "tools", "documents", "turns"),
    "loop_controls": ("one", "system", "long", "developer", "called"),
    "generation_blocks": ("one", "turns", "closed", "unicode"),
    "captured": ("one", "system", "long", "unicode"),
    "parts": ("one", "turns"),
    "json_everything": ("one", "unicode", "tools", "called", "reasoned"),
}
PAIRS = [(template, conversation) for template, names in TAKES.items() for conversation in names]


class _Clock(datetime.datetime):
    @classmethod
    def now(cls, tz: Any = None) -> datetime.datetime:
        return NOW


@pytest.fixture
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference reads the same time as the templates under test."""
    monkeypatch.setattr(reference, "datetime", _Clock)


def chat_of(name: str, tokenizer: Tokenizer) -> ChatTemplate:
    """A template of the tests with a tokenizer."""
    text = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(TemplateSource(text, Location(f"{name}.jinja")), tokenizer, clock=lambda: NOW)


@functools.cache
def reference_of(folder: Path, name: str) -> PreTrainedTokenizerFast:
    """The same in transformers."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        bos_token="<s>",
        eos_token="</s>",
        chat_template=(TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8"),
    )


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 40
    assert set(TAKES) == {file.stem for file in TEMPLATES.glob("*.jinja")}


@pytest.mark.usefixtures("fixed_clock")
@pytest.mark.parametrize(("template", "conversation"), PAIRS)
@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece_bpe", "unigram"])
def test_text_and_ids_are_those_of_transformers(
    kind: str, template: str, conversation: str, loaded: dict[str, Tokenizer], tokenizer_files: dict[str, Path]
) -> None:
    asked = {"add_generation_prompt": True, **CONVERSATIONS[conversation]}
    peer = reference_of(tokenizer_files[kind], template)
    others = {key: value for key, value in asked.items() if key != "messages"}
    text = peer.apply_chat_template(asked["messages"], tokenize=False, **others)
    ids = peer.apply_chat_template(asked["messages"], tokenize=True, return_dict=False, **others)

    chat = chat_of(template, loaded[kind])
    rendered = chat.render_chat(**asked)
    assert rendered.text == text
    assert type(rendered.text) is str
    assert "".join(piece.text for piece in rendered.pieces) == text
    assert list(chat.encode_chat(**asked)) == ids


@pytest.mark.parametrize(
    ("template", "conversation", "message"),
    [
        ("no_system", "system", "System role not supported"),
        ("dated_tools", "two_calls", "One call at a time, please."),
        ("bracketed", "two_users", "Turns must go user, assistant, user, assistant"),
        ("bracketed", "late_system", "Only user and assistant roles, after an optional system message!"),
    ],
)
def test_a_template_that_raises_gives_its_own_message(
    template: str, conversation: str, message: str, loaded: dict[str, Tokenizer]
) -> None:
    messages = {
        "system": [SYSTEM, HELLO],
        "two_calls": [HELLO, {"role": "assistant", "tool_calls": [CALL, CALL]}],
        "two_users": [HELLO, HELLO],
        "late_system": [HELLO, {"role": "developer", "content": "x"}],
    }[conversation]
    with pytest.raises(TemplateError) as raised:
        chat_of(template, loaded["byte_level"]).render_chat(messages)
    assert raised.value.message == message
    assert "chat template itself" in raised.value.hint

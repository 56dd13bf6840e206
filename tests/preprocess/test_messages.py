"""Conversations are brought into the form templates expect, or refused naming the field at fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.chat_template import ChatProgram
from genai_pipeline.preprocess.messages import MessageRules, read_messages, read_objects, user_turn
from genai_pipeline.preprocess.tokenizer import Tokenizer

TEXT_ONLY = MessageRules()


def test_text_parts_are_joined_in_order() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    messages = [{"role": "system", "content": parts}, {"role": "user", "content": parts}]
    assert [message["content"] for message in read_messages(messages, TEXT_ONLY)] == ["one\ntwo", "one\ntwo"]


def test_templates_that_walk_parts_get_parts() -> None:
    rules = MessageRules(content="parts")
    assert read_messages(user_turn("hi"), rules)[0]["content"] == [{"type": "text", "text": "hi"}]
    either = MessageRules(content="either")
    assert read_messages(user_turn("hi"), either)[0]["content"] == "hi"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{% for part in m.content %}[{{ part.text }}]{% endfor %}{% endfor %}", "[a][b][c]"),
        ("{% for m in messages %}[{{ m.content }}]{% endfor %}", "[a\nb][c]"),
        (
            "{% for m in messages %}{% if m['content'] is string %}<{{ m.content }}>"
            "{% else %}{% for p in m['content'] %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}",
            "[a][b]<c>",
        ),
    ],
)
def test_the_template_decides_the_form(
    source: str, text: str, byte_tokenizer: Tokenizer, make_chat: Callable[[str, Tokenizer], ChatTemplate]
) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}, {"role": "user", "content": "c"}]
    assert make_chat(source, byte_tokenizer).render_chat(messages).text == text


def test_tool_call_arguments_become_objects_and_nulls_go() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, null]}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    read = read_messages([message], TEXT_ONLY)[0]
    assert read == {
        "role": "assistant",
        "tool_calls": [{**call, "function": {"name": "f", "arguments": {"a": [1, None]}}}],
    }
    bare = {"role": "assistant", "tool_calls": [{"name": "f", "arguments": ""}]}
    assert read_messages([bare], TEXT_ONLY)[0]["tool_calls"] == [{"name": "f", "arguments": {}}]


def test_reasoning_is_given_under_every_name_templates_use() -> None:
    for name in ("reasoning", "thinking", "reasoning_content"):
        read = read_messages([{"role": "assistant", "content": "4", name: "2+2"}], TEXT_ONLY)[0]
        assert read["thinking"] == read["reasoning_content"] == "2+2"


def test_a_plain_prompt_is_a_user_turn() -> None:
    assert user_turn("hi") == [{"role": "user", "content": "hi"}]
    assert user_turn("hi", "be kind")[0] == {"role": "system", "content": "be kind"}


def test_words_of_the_template_may_be_roles(
    byte_tokenizer: Tokenizer, make_chat: Callable[[str, Tokenizer], ChatTemplate]
) -> None:
    chat = make_chat("{% for m in messages %}{{ m.role == 'ipython' }}{% endfor %}", byte_tokenizer)
    assert chat.render_chat([{"role": "ipython", "content": "x"}]).text == "True"
    with pytest.raises(RequestError, match="unknown role 'narrator'"):
        chat.render_chat([{"role": "narrator", "content": "x"}])


@pytest.mark.parametrize(
    ("source", "roles"),
    [
        ("{{ m['role'] == 'ipython' }}{{ m['content'] }}{{ m.tool_calls is defined and 'x' == y }}", {"ipython"}),
        ("{% if 'tool' == m.role or m.role != 'critic' %}{% endif %}", {"tool", "critic"}),
        ("{% if message.role in ['a', 'b'] or role not in ('c', 'd') %}{% endif %}", {"a", "b", "c", "d"}),
        ("{% set r = m.get('role', '') | trim %}{% if r.lower() == 'judge' %}{% endif %}", {"judge"}),
        (
            "{{ {'assistant': 'model'}[m.role] }}{{ m.role is eq('x') }}{{ m.role is in(['y']) }}",
            {"assistant", "x", "y"},
        ),
        ("{{ messages | selectattr('role', 'equalto', 'system') | list }}", {"system"}),
        ("{{ (m.role == 'user') != (loop.index0 % 2 == 0) }}{{ m['type'] == 'image' }}", {"user"}),
        ("{{ '<|' + m.role + '|>' + m['content'] }}{{ m.role == '<|end|>' }}", set()),
    ],
)
def test_roles_are_what_a_role_is_compared_with(source: str, roles: set[str]) -> None:
    assert ChatProgram(source).roles() == roles


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("messages", "param", "words"),
    [
        ([], "messages", "empty"),
        ("hello", "messages", "must be a list"),
        (7, "messages", "must be a list"),
        (["hello"], "messages[0]", "must be an object"),
        ([{"content": "x"}], "messages[0].role", "no role"),
        ([{"role": None, "content": "x"}], "messages[0].role", "no role"),
        ([{"role": "usr", "content": "x"}], "messages[0].role", "unknown role 'usr'"),
        ([{"role": "user"}], "messages[0].content", "no content"),
        ([{"role": "user", "content": None}], "messages[0].content", "no content"),
        ([{"role": "user", "content": 7}], "messages[0].content", "a text or a list"),
        ([{"role": "user", "content": []}], "messages[0].content", "empty list"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]", "unknown type"),
        ([{"role": "user", "content": [{"type": "txt", "text": "x"}]}], "messages[0].content[0]", "unknown type 'txt'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]", "needs a 'text'"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {}}]}],
            "messages[0].content[1]",
            "takes no image",
        ),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls", "must be a list"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls[0]", "function with a name"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "messages[0].tool_calls[0].function.arguments",
            "not valid JSON",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}],
            "messages[0].tool_calls[0].function.arguments",
            "JSON object",
        ),
        ([{"role": "user", "content": "x", "extra": object()}], "messages[0].extra", "must be JSON data"),
        ([{"role": "user", "content": "x", "extra": deep(100)}], None, "nested more than"),
    ],
)  # fmt: skip
def test_malformed_conversations_name_the_field(messages: Any, param: str | None, words: str) -> None:
    with pytest.raises(RequestError, match=words) as raised:
        read_messages(messages, TEXT_ONLY)
    assert param is None or raised.value.param == param


def test_a_near_role_is_suggested() -> None:
    with pytest.raises(RequestError) as raised:
        read_messages([{"role": "assistent", "content": "x"}], TEXT_ONLY)
    assert raised.value.hint == "did you mean 'assistant'?"


def test_tools_are_checked_and_none_are_none() -> None:
    assert read_objects("tools", []) is None
    assert read_objects("tools", None) is None
    assert read_objects("tools", [{"a": (1, 2)}]) == [{"a": [1, 2]}]
    for bad in ("x", 5, ["x"]):
        with pytest.raises(RequestError) as raised:
            read_objects("tools", bad)  # type: ignore[arg-type]
        assert raised.value.param == "tools"

"""Where the chat template comes from, and what happens when there is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import PackageInvalidError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.chat import ChatTemplate
from genai_pipeline.preprocess.template_source import find_template
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location, Problems

Save = Callable[..., Path]
Spec = Callable[..., TokenizerSpec]
MESSAGES = [{"role": "user", "content": "hi"}]
NAMED = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools: {{ tools | length }}"}]


def found(folder: Path, spec: TokenizerSpec) -> tuple[str | None, list[tuple[str, str]]]:
    """The template's text, and code and file of the problems."""
    problems = Problems()
    source = find_template(folder, spec, problems)
    return source and source.text, [(problem.code, problem.at.file) for problem in problems]


def test_the_first_of_the_documented_order_wins(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer(
        **{"tokenizer_config.json": {"chat_template": "config"}, "chat_template.json": {"chat_template": "json"}}
    )
    (folder / "chat_template.jinja").write_text("beside")
    (folder / "own.jinja").write_text("declared")
    assert found(folder, make_spec(chat_template="own.jinja")) == ("declared", [])
    assert found(folder, make_spec()) == ("beside", [])
    (folder / "chat_template.jinja").unlink()
    assert found(folder, make_spec()) == ("config", [])
    (folder / "tokenizer_config.json").write_text("{}")
    assert found(folder, make_spec()) == ("json", [])
    (folder / "chat_template.json").unlink()
    assert found(folder, make_spec()) == (None, [])


def test_files_lie_beside_the_tokenizer(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    (folder / "chat_template.jinja").write_text("beside")
    assert found(folder.parent, make_spec(file=f"{folder.name}/tokenizer.json")) == ("beside", [])


def test_no_template_is_no_problem(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    tokenizer = Tokenizer.load(folder, make_spec())
    assert ChatTemplate.load(folder, make_spec(), tokenizer) is None
    assert tokenizer.decode(tokenizer.encode_prompt("still works")) == "still works"


def test_the_named_template_for_tools_is_used_when_there_are_tools(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer(**{"tokenizer_config.json": {"chat_template": NAMED}})
    chat = ChatTemplate.load(folder, make_spec(), Tokenizer.load(folder, make_spec()))
    assert chat is not None
    assert chat.render_chat(MESSAGES).text == "plain"
    assert chat.render_chat(MESSAGES, tools=[]).text == "plain"
    assert chat.render_chat(MESSAGES, tools=[{"name": "f"}]).text == "tools: 1"


@pytest.mark.parametrize(
    "declared",
    [7, {"default": "x"}, ["x"], [{"name": "default"}], [{"name": 1, "template": "x"}], [NAMED[1]], []],
)
def test_unusable_declarations_are_named(declared: Any, save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer(**{"tokenizer_config.json": {"chat_template": declared}})
    assert found(folder, make_spec()) == (None, [("template.file", "tokenizer_config.json")])


def test_a_declared_template_must_be_there_and_be_text(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    assert found(folder, make_spec(chat_template="gone.jinja"))[1] == [("path.missing", "inference_metadata.yaml")]
    (folder / "chat_template.jinja").write_bytes(b"caf\xe9")
    assert found(folder, make_spec()) == (None, [("template.file", "chat_template.jinja")])
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").symlink_to("/etc/hostname")
    assert found(folder, make_spec()) == (None, [("path.outside", "chat_template.jinja")])


def test_syntax_errors_are_at_their_line(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    (folder / "chat_template.jinja").write_text("a\n\n{% endfor %}\n")
    tokenizer = Tokenizer.load(folder, make_spec())
    with pytest.raises(PackageInvalidError) as raised:
        ChatTemplate.load(folder, make_spec(), tokenizer)
    assert [problem.at for problem in raised.value.problems] == [Location("chat_template.jinja", 3, 1)]
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "a\n{% endfor %}"}))
    with pytest.raises(PackageInvalidError, match="line 2 of the template") as raised:
        ChatTemplate.load(folder, make_spec(), tokenizer)
    assert raised.value.problems[0].at.file == "tokenizer_config.json"


def test_line_ends_are_read_as_transformers_reads_them(save_tokenizer: Save, make_spec: Spec) -> None:
    folder = save_tokenizer()
    (folder / "chat_template.jinja").write_bytes(b"a\r\nb\r\n\r\n")
    chat = ChatTemplate.load(folder, make_spec(), Tokenizer.load(folder, make_spec()))
    assert chat is not None
    assert chat.render_chat(MESSAGES).text == "a\nb\n"

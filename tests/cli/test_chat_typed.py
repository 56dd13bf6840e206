"""What is typed in a chat, and what is remembered of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.cli.chat import history
from genai_pipeline.cli.chat.history import History
from genai_pipeline.cli.chat.typed import Command, Said, is_open, read_typed


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", None),
        (" \n ", None),
        ("hello", Said("hello")),
        ("  hello ", Said("  hello ")),
        ("one\\\ntwo", Said("one\ntwo")),
        ("one\\", Said("one")),
        ("one\ntwo", Said("one\ntwo")),
        ('"""one"""', Said("one")),
        ('"""\n one\\\n\ntwo\n"""', Said(" one\\\n\ntwo")),
        ('"""one\ntwo', Said("one\ntwo")),
        ('"""/exit"""', Said("/exit")),
        ('"""\n"""', None),
        ('say """this"""', Said('say """this"""')),
        ("/exit", Command("exit", "")),
        (" /fork  side ", Command("fork", "side")),
        ("/system Be\\\nbrief", Command("system", "Be\nbrief")),
        ("/", Command("", "")),
        ("//etc", Said("/etc")),
    ],
)
def test_meanings(text: str, meant: object) -> None:
    assert read_typed(text) == meant


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("hello", False),
        ("one\\", True),
        ("one\\\ntwo", False),
        ('"""', True),
        ('"""one', True),
        ('"""one\n\\', True),
        ('""""', True),
        ('"""one"""', False),
        ('"""\none\n""" ', False),
        ('say """', False),
    ],
)
def test_texts_that_go_on(text: str, more: bool) -> None:
    assert is_open(text) is more


@given(st.text())
def test_any_text_can_be_said_in_a_block(text: str) -> None:
    if '"""' in text or text.endswith('"') or text.startswith('"') or not text.strip():
        return
    block = f'"""\n{text}\n"""'
    assert not is_open(block)
    assert read_typed(block) == Said(text)


def silence(text: str) -> None:
    raise AssertionError(text)


def test_entries_outlive_the_chat_and_are_the_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "home" / "typed"
    first = History(file, silence)
    for text in ("one", "two\nlines", "two\nlines", "é\u2028"):
        first.add(text)
    assert list(History(file, silence).entries) == ["one", "two\nlines", "é\u2028"]
    assert os.stat(file).st_mode & 0o777 == 0o600


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "typed"
    file.write_bytes(b'"one"\n"tw\n7\n\xff\n"three"\n')
    assert list(History(file, silence).entries) == ["one", "three"]


def test_a_long_history_is_cut_to_its_newest_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_ENTRIES", 3)
    file = tmp_path / "typed"
    file.write_text("".join(f"{json.dumps(str(number))}\n" for number in range(6)))
    assert len(History(file, silence).entries) == 6
    History(file, silence).add("6")
    assert list(History(file, silence).entries) == ["4", "5", "6"]
    assert file.read_text() == '"4"\n"5"\n"6"\n'
    assert os.listdir(tmp_path) == ["typed"]


def test_a_file_that_cannot_be_written_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: list[str] = []
    kept = History(tmp_path / "file" / "typed", told.append)
    kept.add("one")
    kept.add("two")
    assert list(kept.entries) == ["one", "two"]
    assert len(told) == 1
    assert told[0].startswith(f"note: what you type is not kept: {tmp_path}/file/typed: ")


def test_without_a_file_nothing_is_kept() -> None:
    kept = History(None, silence)
    kept.add("one")
    assert (list(kept.entries), list(History(None, silence).entries)) == (["one"], [])

"""Tokenizers that are no more than a list of texts: words and characters, from lines and from JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import PackageInvalidError, RequestError
from genai_pipeline.metadata.model import TokenizerSpec
from genai_pipeline.preprocess.detokenizer import Detokenizer
from genai_pipeline.preprocess.plain_encoder import Piece
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Location

SOUNDS = ("<pad>", "<unk>", "<s>", "</s>", "AA1", "B", "K", "IY0")


def loaded(folder: Path, content: str, kind: Any, file: str = "tokens.txt", **fields: Any) -> Tokenizer:
    """The tokenizer of a file with that content."""
    (folder / file).write_text(content, encoding="utf-8")
    return Tokenizer.load(folder, TokenizerSpec(Location("inference_metadata.yaml"), "default", file, kind, **fields))


@pytest.mark.parametrize("form", ["lines", "list", "object"])
def test_words_are_tokens_with_their_place_as_id(tmp_path: Path, form: str) -> None:
    content = {
        "lines": "\n".join(SOUNDS) + "\n",
        "list": json.dumps(SOUNDS),
        "object": json.dumps({text: number for number, text in enumerate(SOUNDS)}),
    }[form]
    file = "tokens.txt" if form == "lines" else "tokens.json"
    sounds = loaded(tmp_path, content, "list", file, eos=("</s>",), pad="<pad>")
    assert sounds.encode_text("B  AA1\nK", allow_special=False) == (5, 4, 6)
    assert sounds.decode([5, 4, 6, 3]) == "B AA1 K"
    assert sounds.vocab_size == len(SOUNDS)
    assert sounds.highest_id == len(SOUNDS) - 1
    assert sounds.end_ids == {3}
    assert sounds.pad_id == 0
    assert [sounds.token_id(text) for text in SOUNDS] == list(range(len(SOUNDS)))


def test_unknown_words_become_the_unknown_token(tmp_path: Path) -> None:
    sounds = loaded(tmp_path, "\n".join(SOUNDS), "list", eos=("</s>",))
    assert sounds.encode_text("B what K", allow_special=False) == (5, 1, 6)


def test_text_forges_no_end_token(tmp_path: Path) -> None:
    sounds = loaded(tmp_path, "\n".join(SOUNDS), "list", eos=("</s>",))
    assert 3 not in sounds.encode_text("B </s> K", allow_special=False)
    assert sounds.encode_pieces((Piece("B "), Piece("</s>", control=True))) == (5, 3)
    assert sounds.encode_text("B </s>", allow_special=True) == (5, 3)


def test_characters_are_tokens_and_join_without_spaces(tmp_path: Path) -> None:
    letters = loaded(tmp_path, json.dumps(["<pad>", "</s>", *"abc é\n"]), "characters", "c.json", eos=("</s>",))
    assert letters.encode_text("a é\nb", allow_special=False) == (2, 5, 6, 7, 3)
    assert letters.decode([2, 5, 6, 7, 3, 1]) == "a é\nb"
    assert letters.vocab_size == 8


@pytest.mark.parametrize(("kind", "text", "part"), [("characters", "abz", "'z'"), ("list", "a bad b", "'bad'")])
def test_a_list_without_unknown_token_refuses_what_it_lacks(tmp_path: Path, kind: str, text: str, part: str) -> None:
    letters = loaded(tmp_path, "a\nb", kind)
    assert letters.vocab_size == 2
    assert letters.highest_id == 1
    with pytest.raises(RequestError, match=f"the text has {part}"):
        letters.encode_text(text, allow_special=False)
    with pytest.raises(RequestError, match=f"the text has {part}"):
        letters.encode_prompt(text)


def test_tokens_stream_as_they_decode(tmp_path: Path) -> None:
    sounds = loaded(tmp_path, "\n".join(SOUNDS), "list", eos=("</s>",))
    stream = Detokenizer(sounds)
    assert "".join(stream.push(token) for token in (5, 4, 7)) + stream.flush() == "B AA1 IY0"


@pytest.mark.parametrize(
    ("content", "file", "message"),
    [
        ("", "t.txt", "it lists no tokens"),
        ("a\nb\na", "t.txt", "'a' is listed twice, as 0 and as 2"),
        ("[1]", "t.json", "entry 0 must be a text"),
        ('{"a": -1}', "t.json", "must be an integer from 0 on"),
        ('{"a": 1, "b": 1}', "t.json", "two texts have the same id"),
        ("7", "t.json", "it must hold a list of texts"),
        ("{", "t.json", "it is not JSON"),
    ],
)
def test_a_file_that_is_no_list_of_tokens_is_refused(tmp_path: Path, content: str, file: str, message: str) -> None:
    with pytest.raises(PackageInvalidError, match=message):
        loaded(tmp_path, content, "list", file)


def test_a_declared_token_that_the_list_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageInvalidError, match="eos: the tokenizer has no token '</t>'"):
        loaded(tmp_path, "\n".join(SOUNDS), "list", eos=("</t>",))

"""End tokens that no file says: named ones, else control tokens of usual texts, told in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.end_tokens import end_tokens
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.source_folder import SourceFolder
from genai_pipeline.importers.structure.texts import read_texts


def _ends(folder: Path, *texts: str, named: tuple[str, ...] = ()) -> tuple[tuple[int, ...], str]:
    """The end tokens of a folder whose control tokens are ``texts``, from 10 on, and the report."""
    added = [{"id": 10 + index, "content": text, "special": True} for index, text in enumerate(texts)]
    added.append({"id": 9, "content": "</s>", "special": False})  # a plain token, whatever its text
    tokenizer = {"model": {"vocab": {f"w{index}": index for index in range(9)}}, "added_tokens": added}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    source, report = SourceFolder(folder), ImportReport()
    return end_tokens(source, read_texts(source), named, report), report.text()


def test_control_tokens_of_usual_texts_end_an_answer(tmp_path: Path) -> None:
    found, report = _ends(tmp_path, "<|endoftext|>", "<|im_start|>", "<|im_end|>")
    assert found == (10, 12)
    assert "<|endoftext|>, <|im_end|>, by their usual texts, as no file says" in report


def test_a_text_that_ends_messages_ends_no_answer_of_several(tmp_path: Path) -> None:
    assert _ends(tmp_path, "<|end|>")[0] == (10,)
    assert _ends(tmp_path, "<|end|>", "<|return|>")[0] == (11,)


def test_nothing_is_found_where_no_text_is_usual(tmp_path: Path) -> None:
    assert _ends(tmp_path, "<|over|>")[0] == ()


def test_what_files_say_counts_before_usual_texts(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|over|>"}')
    assert _ends(tmp_path, "<|im_end|>", "<|over|>") == ((), "")


def test_what_is_named_counts_before_all(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|over|>"}')
    assert _ends(tmp_path, "<|im_end|>", "<|over|>", named=("<|im_end|>", "3"))[0] == (10, 3)


@pytest.mark.parametrize("name", ["<|im_und|>", "99"])
def test_what_is_named_must_be_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ImportModelError, match="no control token") as caught:
        _ends(tmp_path, "<|im_end|>", named=(name,))
    assert "<|im_end|>" in caught.value.hint or "by its id" in caught.value.hint

"""Folders whose config names no end token: files beside it do, or control tokens of usual texts, or the caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.cli.main import run_command
from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.genai_config import import_genai_config

Folders = Callable[..., Any]


def _unending(config: dict[str, Any]) -> None:
    """What a builder writes that does not know where answers end."""
    del config["model"]["eos_token_id"]


def _stops(made: Path, folder: Any) -> bool:
    """Whether answers end where the closed form's do."""
    assert gp.validate(made)[1] == ()
    prompt = folder.package.vocabulary.chat_prompt(("user", "hello"))
    with gp.load(made) as pipe:
        found = pipe.generate(tokens=prompt, max_new_tokens=40, temperature=0)
    answer = folder.package.answer(prompt, 40)
    return list(found.tokens) == answer and found.finish_reason == ("stop" if len(answer) < 40 else "length")


def _without_added(folder: Any) -> None:
    """A tokenizer that has no control tokens."""
    file = folder.path / "tokenizer.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "added_tokens": []}))


def test_control_tokens_of_usual_texts_end_an_answer(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(edit=_unending)
    report = import_genai_config(folder.path, tmp_path / "made")
    assert "tokenizer.eos: </s>, <|im_end|>, by their usual texts, as no file says" in report.text()
    assert _stops(tmp_path / "made", folder)


def test_what_files_beside_the_config_say_comes_first(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(edit=_unending)
    vocabulary = folder.package.vocabulary
    (folder.path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    import_genai_config(folder.path, tmp_path / "by_text")
    assert 'eos: ["<|im_end|>"]' in (tmp_path / "by_text" / "inference_metadata.yaml").read_text()
    ends = [vocabulary.id("</s>"), vocabulary.id("<|im_end|>")]
    (folder.path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    report = import_genai_config(folder.path, tmp_path / "by_ids")
    assert "generation_config.json: eos_token_id -> tokenizer.eos" in report.text()
    assert _stops(tmp_path / "by_ids", folder)


def test_named_tokens_come_before_everything(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder()
    target = str(tmp_path / "made")
    command = ["import", "genai-config", str(folder.path), target, "--eos", "</s>", "--eos", "<|im_end|>"]
    assert run_command(command) == 0
    assert _stops(tmp_path / "made", folder)
    with pytest.raises(ImportModelError, match="no control token") as caught:
        import_genai_config(folder.path, tmp_path / "other", eos=["<|im_ned|>"])
    assert caught.value.hint == "did you mean '<|im_end|>'?"
    assert not (tmp_path / "other").exists()


def test_answers_that_nothing_ends_are_told_of(genai_folder: Folders, tmp_path: Path) -> None:
    folder = genai_folder(edit=_unending, chat_template=None)
    _without_added(folder)
    report = import_genai_config(folder.path, tmp_path / "made")
    assert "model.eos_token_id dropped: missing, and no other file names a token" in report.text()
    assert "--eos TOKEN" in report.text()

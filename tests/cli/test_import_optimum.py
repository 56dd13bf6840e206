"""``import optimum``: the package on stdout, what became of every key on stderr, refusals with all that is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.testing.packages import write_package

Command = Any


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a closed-form decoder as Optimum lays it out."""
    package = write_package(tmp_path / "tiny", "kv", update="append")
    folder = tmp_path / "source"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model_q4.onnx").write_bytes((package.path / "model.onnx").read_bytes())
    (folder / "tokenizer.json").write_bytes((package.path / "tokenizer.json").read_bytes())
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 64, "eos_token_id": 1}))
    return folder


def test_a_package_is_made_and_every_key_is_told(command: Command, source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    ran = command("import", "optimum", source, made, "--precision", "q4")
    assert (ran.code, ran.out) == (0, f"{made}\n")
    assert "config.json: max_position_embeddings -> limits.context_length" in ran.err
    assert command("validate", made).code == 0


def test_a_refusal_lists_everything_and_leaves_nothing(command: Command, source: Path, tmp_path: Path) -> None:
    (source / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": 3, "bad_words_ids": [[2, 3]]}))
    ran = command("import", "optimum", source, tmp_path / "made")
    assert (ran.code, ran.out) == (1, "")
    assert "forced_bos_token_id" in ran.err
    assert "bad_words_ids" in ran.err
    assert not (tmp_path / "made").exists()


def test_a_hub_name_of_another_form(command: Command) -> None:
    ran = command("pull", "hf:nothing")
    assert (ran.code, ran.out) == (2, "")
    assert "hf:OWNER/NAME" in ran.err

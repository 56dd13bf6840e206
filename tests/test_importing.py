"""Imports whose package would be invalid are refused, at the file and key of the source, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline import importing
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.testing.packages import write_package

Write = Callable[[str, Any], None]
SOUND: dict[str, Any] = {
    "model": {
        "type": "llama",
        "context_length": 64,
        "eos_token_id": 1,
        "pad_token_id": 1,
        "decoder": {
            "filename": "model.onnx",
            "inputs": {
                "input_ids": "input_ids",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
        },
    }
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a closed-form decoder, as Optimum and as onnxruntime-genai read it."""
    package = write_package(tmp_path / "tiny", "kv", update="append")
    folder = tmp_path / "source"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        (folder / name).write_bytes((package.path / name).read_bytes())
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 64, "eos_token_id": 1}))
    (folder / "genai_config.json").write_text(json.dumps(SOUND))
    return folder


@pytest.mark.parametrize("kind", ["optimum", "genai_config"])
def test_a_sound_source_becomes_a_valid_package(kind: str, source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert getattr(importing, f"import_{kind}")(source, made).rows
    spec, problems = gp.validate(made)
    assert spec is not None
    assert (spec.name, problems) == ("made", ())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source", "tiny"]


@pytest.mark.parametrize(
    ("file", "content", "places"),
    [
        ("generation_config.json", {"eos_token_id": 99999}, ["generation_config.json: eos_token_id"]),
        (
            "generation_config.json",
            {"do_sample": True, "temperature": -3, "repetition_penalty": -3, "max_new_tokens": 0},
            [f"generation_config.json: {key}" for key in ("temperature", "repetition_penalty", "max_new_tokens")],
        ),
        ("tokenizer.json", {}, ["tokenizer.json"]),
        ("chat_template.jinja", "{% for m in", ["chat_template.jinja"]),
    ],
)
def test_what_would_be_invalid_is_refused_where_it_comes_from(
    source: Path, tmp_path: Path, file: str, content: Any, places: list[str]
) -> None:
    (source / file).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ImportRefusedError) as refused:
        importing.import_optimum(source, tmp_path / "new" / "inner" / "made")
    for place in places:
        assert f"\n  {place}: " in refused.value.message
    assert "import it again" in refused.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "tiny"]


@pytest.mark.parametrize("key", ["eos_token_id", "pad_token_id"])
def test_tokens_of_a_genai_config_are_in_the_vocabulary(source: Path, tmp_path: Path, key: str) -> None:
    config = {"model": {**SOUND["model"], key: 99999}}
    (source / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ImportRefusedError, match=rf"genai_config.json: model.{key}: .*99999"):
        importing.import_genai_config(source, tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "tiny"]


def test_an_empty_folder_that_was_there_stays(source: Path, tmp_path: Path) -> None:
    (source / "chat_template.jinja").write_text("{{")
    (tmp_path / "made").mkdir()
    with pytest.raises(ImportRefusedError):
        importing.import_optimum(source, tmp_path / "made")
    assert list((tmp_path / "made").iterdir()) == []

"""What cannot be mapped is refused by name, all of it at once, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from genai_pipeline.errors import ImportModelError, ImportRefusedError
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.importers.optimum.layout import find_layout


def refusal(source: Any, place: Path, kind: type[ImportModelError] = ImportModelError, **options: Any) -> Any:
    """The error of an import that leaves nothing."""
    place.mkdir()
    with pytest.raises(kind) as caught:
        import_optimum(source.path, place / "made", **options)
    assert list(place.iterdir()) == []
    return caught.value


def test_everything_that_cannot_be_mapped_is_listed_at_once(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    model = source.tiny()
    model.graph.input.append(helper.make_tensor_value_info("speaker", TensorProto.FLOAT, [1, 4]))
    source.graph("model.onnx", model)
    source.json("config.json", {"model_type": "tiny"})
    source.json(
        "generation_config.json", {"forced_bos_token_id": 5, "bad_words_ids": [[3, 4]], "transformers_version": "5"}
    )
    error = refusal(source, tmp_path / "place", ImportRefusedError)
    for name in ("speaker", "forced_bos_token_id", "bad_words_ids", "max_position_embeddings"):
        assert name in error.message
    assert "transformers_version" not in error.message


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("max_position_embeddings", "many", "an integer of at least 1"),
        ("eos_token_id", "end", "an integer or a list of integers"),
        ("max_position_embeddings", -1, "an integer of at least 1"),
    ],
)
def test_wrong_values_of_the_config_are_named(
    folder: Callable[..., Any], tmp_path: Path, key: str, value: Any, allowed: str
) -> None:
    source = folder("kv")
    source.graph("model.onnx", source.tiny())
    source.json("config.json", {"max_position_embeddings": 256, key: value})
    error = refusal(source, tmp_path / "place")
    assert f"config.json: {key} is {json.dumps(value)}" in error.message
    assert allowed in error.message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_missing_files_are_named(folder: Callable[..., Any], tmp_path: Path, name: str) -> None:
    source = folder("kv")
    source.graph("model.onnx", source.tiny())
    (source.path / name).unlink()
    assert f"'{name}' is missing" in refusal(source, tmp_path / "place").message


def test_graphs_of_no_known_shape_are_named_with_their_ports(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    source.graph("unet.onnx", source.tiny())
    error = refusal(source, tmp_path / "place")
    assert "onnx/unet.onnx" in error.message
    assert "input_ids" in error.message
    assert "text decoder" in error.hint


def test_a_folder_of_another_kind(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    assert "no ONNX files at all" in refusal(source, tmp_path / "place").message


def test_a_precision_that_is_not_there_names_those_that_are(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    source.graph("model_q4.onnx", source.tiny())
    error = refusal(source, tmp_path / "place", precision="fp16")
    assert "precision 'fp16'" in error.message
    assert "q4" in error.hint


def test_an_unknown_key_changes_nothing_and_is_reported(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv")
    source.graph("model.onnx", source.tiny())
    source.json("config.json", {"max_position_embeddings": 256, "eos_token_id": 1, "a_new_field": {"x": 1}})
    import_optimum(source.path, tmp_path / "made")
    rows = json.loads((tmp_path / "made" / "import_report.json").read_text())["rows"]
    assert [row["outcome"] for row in rows if row["key"] == "a_new_field.x"] == ["dropped"]


def test_weights_outside_are_refused_before_they_are_opened(folder: Callable[..., Any], tmp_path: Path) -> None:
    source = folder("kv", external_data=True)
    for file in source.package.path.glob("model.onnx*"):
        (source.path / "onnx" / file.name).write_bytes(file.read_bytes())
    weights = source.path / "onnx" / "model.onnx.data"
    weights.rename(tmp_path / "secret")
    weights.symlink_to(tmp_path / "secret")
    assert "outside" in refusal(source, tmp_path / "place").message


def test_which_graphs_are_taken() -> None:
    both = ("decoder_model_merged", "decoder_model", "decoder_with_past_model", "encoder_model")
    names = [f"onnx/{role}{suffix}.onnx" for role in both for suffix in ("", "_q4f16")]
    layout = find_layout([*names, "onnx/other.onnx", "config.json"])
    assert layout is not None
    assert layout.graphs == {
        "decoder_model_merged": "onnx/decoder_model_merged.onnx",
        "encoder_model": "onnx/encoder_model.onnx",
    }
    assert "merged" in layout.unused["onnx/decoder_model.onnx"]
    assert "precision q4f16" in layout.unused["onnx/encoder_model_q4f16.onnx"]
    assert find_layout(["weights.onnx"]) is None

"""What models that see or hear cannot be imported with: every reason is named, on one screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from genai_pipeline.cli.main import run_command
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.genai_config import import_genai_config

Folders = Callable[..., Any]
Edit = Callable[[dict[str, Any]], object]


def refused(folder: Any, target: Path) -> dict[str, str]:
    """Key -> reason of every refusal; nothing is left behind."""
    with pytest.raises(ImportRefusedError) as caught:
        import_genai_config(folder.path, target)
    assert not target.exists()
    return {str(row["key"]): str(row["detail"]) for row in caught.value.rows}


def of(key: str, value: object) -> Edit:
    """Sets a key by its path, such as model.vision.filename."""

    def edit(config: dict[str, Any]) -> None:
        *path, last = key.split(".")
        for name in path:
            config = config.setdefault(name, {})
        config[last] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "key", "why"),
    [
        (of("model.type", "phi3v"), "model.type", "numbered marks (<|image_1|>)"),
        (
            of("model.type", "gemma9"),
            "model.type",
            "'gemma9': its prompts tell of pictures by rules that are not known",
        ),
        (of("model.image_token_id", 3), "model.image_token_id", "is 3; <image_soft_token> of tokenizer.json is 7"),
        (of("model.vision.adapter_filename", "v.adapter"), "model.vision.adapter_filename", "laid over the decoder's"),
        (of("model.vision.inputs.pixel_values", "pixels"), "model.vision.inputs.pixel_values", "no port of this name"),
        (of("model.vision.outputs.image_features", "x"), "model.vision.outputs.image_features", "no port of this name"),
        (of("model.embedding.inputs.image_features", "x"), "model.embedding.inputs.image_features", "no graph takes"),
    ],
)
def test_keys_that_cannot_be_mapped(seeing_folder: Folders, tmp_path: Path, edit: Edit, key: str, why: str) -> None:
    folder = seeing_folder()
    folder.reconfigure(edit)
    assert why in refused(folder, tmp_path / "made")[key]


def test_a_mixer_that_changes_rows(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()
    model = onnx.load(folder.path / "embedding.onnx")
    (place,) = (node for node in model.graph.node if "image_features" in node.input)
    place.input[list(place.input).index("image_features")] = "halved"
    model.graph.node.insert(0, helper.make_node("Neg", ["image_features"], ["halved"]))
    onnx.save(model, folder.path / "embedding.onnx")
    assert "changes the rows that it puts in places (Neg)" in refused(folder, tmp_path / "made")["image_features"]


def test_a_mixer_that_uses_rows_in_a_branch(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()
    model = onnx.load(folder.path / "embedding.onnx")
    (place,) = (node for node in model.graph.node if "image_features" in node.input)
    place.input[list(place.input).index("image_features")] = "chosen"
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["image_features"], [kind])], kind, [], [helper.make_empty_tensor_value_info(kind)]
        )
        for kind in ("Identity", "Neg")
    ]
    yes = helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("yes", onnx.TensorProto.BOOL, [], [True]))
    choose = helper.make_node("If", ["yes"], ["chosen"], then_branch=branches[0], else_branch=branches[1])
    model.graph.node.insert(0, choose)
    model.graph.node.insert(0, yes)
    onnx.save(model, folder.path / "embedding.onnx")
    assert "(If)" in refused(folder, tmp_path / "made")["image_features"]


def test_steps_and_graph_that_do_not_fit(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()

    def smaller(config: dict[str, Any]) -> None:
        config["processor"]["transforms"][1]["operation"]["attrs"]["height"] = 12

    folder.reconfigure(smaller, "processor_config.json")
    found = refused(folder, tmp_path / "made")
    assert found["model.vision.inputs.pixel_values"] == "the port is [images, 3, 16, 16]; the steps make [1, 3, 12, 16]"


def test_steps_that_do_not_tell_what_prompts_need(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder("mistral3", axes=2)
    found = refused(folder, tmp_path / "made")
    assert "prompts of this type need pixels and their size" in found["processor.transforms"]


def test_positions_on_three_axes(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()
    model = onnx.load(folder.path / "model.onnx")
    model.graph.input.append(helper.make_tensor_value_info("position_ids", onnx.TensorProto.INT64, [3, "batch", "n"]))
    onnx.save(model, folder.path / "model.onnx")
    found = refused(folder, tmp_path / "made")
    assert found["model.decoder.inputs.position_ids"] == "the port 'position_ids' has 3 axes where 2 are known"


def test_a_model_that_sees_and_hears_is_refused_on_one_screen(
    seeing_folder: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = seeing_folder()

    def edit(config: dict[str, Any]) -> None:
        config["model"]["type"] = "phi4mm"
        config["model"]["vision"]["adapter_filename"] = "vision.onnx_adapter"
        config["model"]["speech"] = {
            "filename": "speech.onnx",
            "config_filename": "speech_processor.json",
            "adapter_filename": "speech.onnx_adapter",
            "inputs": {"audio_embeds": "audio_embeds"},
        }

    folder.reconfigure(edit)
    steps = [{"operation": {"name": kind, "type": kind}} for kind in ("AudioDecoderEx", "Phi4AudioEmbed")]
    speech = {"feature_extraction": {"sequence": steps}}
    (folder.path / "speech_processor.json").write_text(json.dumps(speech), encoding="utf-8")
    vision = {"processor": {"name": "x", "transforms": [{"operation": {"name": "x", "type": "Phi4VisionProcessor"}}]}}
    (folder.path / "processor_config.json").write_text(json.dumps(vision), encoding="utf-8")
    assert run_command(["import", "genai-config", str(folder.path), str(tmp_path / "made")]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    for reason in (
        "numbered marks (<|image_1|>, <|audio_1|>)",
        "model.vision.adapter_filename: weights that are laid over the decoder's while there are pictures",
        "model.speech: sounds beside text: neither their marks",
        "model.speech.adapter_filename: weights that are laid over the decoder's while there are sounds",
        "the step AudioDecoderEx brings sounds to one of several sampling rates",
        "the step Phi4AudioEmbed makes log-mel features of two sampling rates",
        "the step Phi4VisionProcessor cuts pictures into tiles with masks",
    ):
        assert reason in printed.err
    assert len(printed.err.splitlines()) < 24
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("speech", [{"filename": "vision.onnx"}, {"pipeline": [{"filename": "vision.onnx"}]}])
def test_a_model_that_only_hears_is_refused(seeing_folder: Folders, tmp_path: Path, speech: dict[str, Any]) -> None:
    folder = seeing_folder()

    def edit(config: dict[str, Any]) -> None:
        del config["model"]["vision"]
        config["model"]["speech"] = speech

    folder.reconfigure(edit)
    assert "model.speech" in refused(folder, tmp_path / "made")


def test_pictures_beside_an_encoder_are_refused(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()
    folder.reconfigure(of("model.encoder.filename", "embedding.onnx"))
    assert "model.vision" in refused(folder, tmp_path / "made")


@pytest.mark.parametrize("lead", [(1, 256), (256,)])
def test_a_mixer_that_cannot_be_given_no_rows(seeing_folder: Folders, tmp_path: Path, lead: tuple[int, ...]) -> None:
    folder = seeing_folder(axes=len(lead) + 1)
    model = onnx.load(folder.path / "embedding.onnx")
    (port,) = (port for port in model.graph.input if port.name == "image_features")
    for dim, size in zip(port.type.tensor_type.shape.dim, lead, strict=False):
        dim.dim_value = size
    onnx.save(model, folder.path / "embedding.onnx")
    sizes = ", ".join(map(str, (*lead, 4)))
    reason = refused(folder, tmp_path / "made")["image_features"]
    assert reason == f"is [{sizes}]: it cannot be given no rows, which a prompt without pictures has"

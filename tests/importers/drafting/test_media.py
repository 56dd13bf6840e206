"""Drafts of models that see and hear: what is asked, answered in the file, makes them run as their twins do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import compose

import genai_pipeline as gp
from genai_pipeline.importers.drafting import write_draft
from genai_pipeline.metadata.load import METADATA_FILE
from genai_pipeline.testing.builder import GraphBuilder
from genai_pipeline.testing.graphs.senses import RATE
from genai_pipeline.testing.media import MediaPackage, write_listener, write_vlm
from genai_pipeline.testing.packages import write_graph
from genai_pipeline.testing.signals import LEVEL_WORDS, PITCH_WORDS, quarters, tone

PICTURE = """
preprocess:
  picture:
    - decode: {mode: RGB}
    - resize: {size: [4, 4], fit: stretch, resample: box}
    - rescale: {factor: 0.00392156862745098}
"""
SOUND = """
preprocess:
  sound: [{decode: {}}, {mono: {}}, {resample: {rate: 8000}}, {pad: {seconds: 0.1}}]
"""


Answer = Callable[..., None]


def unknown(package: MediaPackage, config: Mapping[str, Any] | None = None) -> Path:
    """The package's folder as one of unknown origin, with the usual config file."""
    (package.path / METADATA_FILE).unlink()
    ends = {"eos_token_id": package.vocabulary.id("</s>")}
    known = {"max_position_embeddings": 256, **ends, **(config or {})}
    (package.path / "config.json").write_text(json.dumps(known))
    return package.path


def seen(path: Path, picture: Any) -> list[int]:
    """The tokens of a question about a picture."""
    message = {"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "?"}]}
    with gp.load(path) as pipe:
        return list(pipe.generate(messages=[message], temperature=0, max_new_tokens=12).tokens)


@pytest.mark.parametrize("update", ["append", "in_place"])
def test_an_eye_a_projector_an_embedding_and_a_decoder(tmp_path: Path, answer: Answer, update: Any) -> None:
    package = write_vlm(tmp_path / "model", update=update, sums=True)
    picture = quarters("red", "green", "blue", "white")
    expected = seen(package.path, picture)
    draft = write_draft(unknown(package, {"image_token_index": package.slot}), name="found")
    answer(draft, {"inputs.media.modality": "image", "inputs.media.program": "picture"}, PICTURE)
    assert gp.validate(package.path)[1] == ()
    assert seen(package.path, picture) == expected
    assert len(expected) >= 4


def test_an_eye_that_gives_embeddings_needs_no_projector(tmp_path: Path, answer: Answer) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    picture = quarters("blue", "red", "white", "green")
    expected = seen(package.path, picture)
    eye, projector = (onnx.load(package.path / f"{name}.onnx") for name in ("vision", "projector"))
    both = compose.merge_models(
        compose.add_prefix(eye, "see_"), compose.add_prefix(projector, "tell_"),
        io_map=[("see_image_features", "tell_features")],
    )  # fmt: skip
    onnx.save(both, package.path / "vision.onnx")
    (package.path / "projector.onnx").unlink()
    draft = write_draft(unknown(package), name="found")
    (token,) = [q.message for q in draft.questions if q.at.path == "inputs.media.placeholder.token"]
    assert "<|im_start|>" in token
    slots = {"inputs.media.placeholder.token": '"<image>"', "inputs.media.placeholder.count": "4"}
    answer(draft, {"inputs.media.modality": "image", "inputs.media.program": "picture", **slots}, PICTURE)
    assert seen(package.path, picture) == expected


SIGLIP = {
    "image_processor_type": "SiglipImageProcessor", "do_resize": True, "size": {"height": 4, "width": 4}, "resample": 4,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": False,
}  # fmt: skip


def test_an_eye_with_the_config_of_its_processor_leaves_nothing_open(tmp_path: Path) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    picture = quarters("blue", "red", "white", "green")
    expected = seen(package.path, picture)
    folder = unknown(package, {"image_token_index": package.slot})
    (folder / "preprocessor_config.json").write_text(json.dumps(SIGLIP))
    assert write_draft(folder, name="found").questions == ()
    assert gp.validate(folder)[1] == ()
    assert seen(folder, picture) == expected


@pytest.mark.parametrize(
    "change", [{"image_processor_type": "OtherImageProcessor"}, {"do_pan_and_scan": True}, {"size": {"edge": 1}}]
)
def test_a_processor_that_no_program_can_be_is_asked_about(tmp_path: Path, change: dict[str, Any]) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    folder = unknown(package, {"image_token_index": package.slot})
    (folder / "preprocessor_config.json").write_text(json.dumps({**SIGLIP, **change}))
    asked = {question.at.path for question in write_draft(folder, name="found").questions}
    assert asked == {"inputs.media.modality", "inputs.media.program"}


def test_an_ear_an_embedding_and_a_decoder(tmp_path: Path, answer: Answer) -> None:
    package = write_listener(tmp_path / "model", update="append")
    draft = write_draft(unknown(package, {"audio_token_index": package.slot}), name="found")
    answers = {"inputs.media.modality": "audio", "inputs.media.program": "sound"}
    answer(draft, {**answers, "stages[0].inputs.samples": "media.samples"}, SOUND)
    assert gp.validate(package.path)[1] == ()
    message = {"role": "user", "content": [{"type": "audio", "audio": (tone(PITCH_WORDS[1], "soft"), RATE)}]}
    with gp.load(package.path) as pipe:
        text = pipe.generate(messages=[message], temperature=0, max_new_tokens=4).text
    assert text == LEVEL_WORDS[1] + PITCH_WORDS[1]


def test_what_a_picture_in_tiles_needs_is_asked(tmp_path: Path) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    b = GraphBuilder("tiles")
    pixels = b.input("pixel_values", "float32", ["batch", "tiles", 3, 4, 4])
    b.input("pixel_attention_mask", "bool", ["batch", "tiles", 4, 4])
    means = b.op("ReduceMean", b.op("Reshape", pixels, np.array([-1, 3, 16])), [2], keepdims=0)
    b.output("image_features", b.op("Unsqueeze", means, [1]), "float32", ["tiles", 1, 3])
    write_graph(package.path / "vision.onnx", b)
    draft = write_draft(unknown(package, {"image_token_id": package.slot}), name="found")
    asked = {question.at.path for question in draft.questions}
    assert {"inputs.media.placeholder.expand", "stages[0].inputs.pixel_attention_mask"} <= asked
    text = draft.file.read_text()
    assert "run: projector, for_each: features" in text
    assert "op: reshape, for_each: projected, with: {shape: [-1, 4]}" in text


def test_validate_lists_what_is_left(tmp_path: Path) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    draft = write_draft(unknown(package), name="found")
    _, problems = gp.validate(package.path)
    assert {problem.code for problem in problems} == {"draft.todo"}
    assert [p.at.path for p in problems] == [q.at.path for q in draft.questions]
    assert len(problems) == 3


def test_two_eyes_leave_a_choice_and_are_described(tmp_path: Path) -> None:
    package = write_vlm(tmp_path / "model", update="append")
    b = GraphBuilder("other")
    pixels = b.input("pictures", "float32", ["batch", 3, 8, 8])
    rows = b.op("Unsqueeze", b.op("ReduceMean", pixels, [2, 3], keepdims=0), [1])
    b.output("features", rows, "float32", ["batch", 1, 3])
    write_graph(package.path / "other.onnx", b)
    draft = write_draft(unknown(package), name="found")
    assert "stages" in {question.at.path for question in draft.questions}

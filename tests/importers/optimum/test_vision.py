"""Vision-language models: the image processor's config becomes the program, the rows go where the image tokens are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import compose

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.importers.optimum.image_program import image_program
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.testing.media import write_vlm

SIGLIP = {
    "image_processor_type": "SiglipImageProcessor", "do_resize": True, "size": {"height": 4, "width": 4}, "resample": 4,
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": False, "do_convert_rgb": None,
}  # fmt: skip
IMAGE = "<image>"


def program(config: dict[str, Any]) -> list[dict[str, Any]]:
    """The program of a config, which nothing is refused of."""
    report = ImportReport()
    steps, _ = image_program(ConfigNode("preprocessor_config.json", "", config), report)
    report.check("the folder")
    return steps


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """The closed-form vision-language package, laid out as transformers.js does."""
    package = write_vlm(tmp_path / "tiny", update="append")
    folder = tmp_path / "source"
    (folder / "onnx").mkdir(parents=True)
    vision, projector = (onnx.load(package.path / f"{name}.onnx") for name in ("vision", "projector"))
    seeing = compose.merge_models(
        compose.add_prefix(vision, "see_"), compose.add_prefix(projector, "tell_"),
        io_map=[("see_image_features", "tell_features")],
    )  # fmt: skip
    for value in (*seeing.graph.input, *seeing.graph.output):
        value.name = {"see_pixel_values": "pixel_values", "tell_rows": "image_features"}[value.name]
    for node in seeing.graph.node:
        node.input[:] = ["pixel_values" if name == "see_pixel_values" else name for name in node.input]
        node.output[:] = ["image_features" if name == "tell_rows" else name for name in node.output]
    onnx.save(seeing, str(folder / "onnx" / "vision_encoder.onnx"))
    for ours, theirs in (("embed", "embed_tokens"), ("decoder", "decoder_model_merged")):
        (folder / "onnx" / f"{theirs}.onnx").write_bytes((package.path / f"{ours}.onnx").read_bytes())
    for name in ("tokenizer.json", "chat_template.jinja"):
        (folder / name).write_bytes((package.path / name).read_bytes())
    config = {"text_config": {"max_position_embeddings": 256}, "eos_token_id": 1, "image_token_index": package.slot}
    (folder / "config.json").write_text(json.dumps({**config, "image_seq_length": 4}))
    (folder / "preprocessor_config.json").write_text(json.dumps(SIGLIP))
    return package, folder


def test_an_imported_model_sees_what_the_package_sees(source: Any, tmp_path: Path) -> None:
    package, folder = source
    import_optimum(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:4, 4:] = (255, 0, 0)
    picture[4:, :4] = (0, 0, 255)
    ask = {
        "messages": [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "?"}]}]
    }
    answers = []
    for path in (package.path, tmp_path / "made"):
        with gp.load(path) as pipe:
            answers.append(list(pipe.generate(**ask, temperature=0, max_new_tokens=12).tokens))
    assert answers[0] == answers[1]
    assert len(answers[0]) >= 4


def test_clip_resizes_and_cuts_out_the_middle() -> None:
    config = {
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}, "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224}, "resample": 3, "image_mean": [0.5, 0.4, 0.3],
        "image_std": [0.1, 0.2, 0.3],
    }  # fmt: skip
    assert program(config) == [
        {"decode": {"mode": "RGB"}},
        {"resize": {"fit": "shortest_edge", "edge": 224, "resample": "bicubic"}},
        {"crop": {"size": [224, 224]}},
        {"rescale": {"factor": 1 / 255}},
        {"normalize": {"mean": [0.5, 0.4, 0.3], "std": [0.1, 0.2, 0.3]}},
    ]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"image_processor_type": "Qwen2VLImageProcessor"}, "Qwen2VLImageProcessor"),
        ({"size": {"longest_edge": 4}}, "size"),
        ({"do_pan_and_scan": True}, "do_pan_and_scan"),
    ],
)
def test_what_the_program_cannot_say_is_refused(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ImportRefusedError, match=key):
        program({**SIGLIP, **change})

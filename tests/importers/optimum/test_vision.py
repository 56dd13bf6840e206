"""Vision-language models: the image processor's config becomes the program, the rows go where the image tokens are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, compose, helper, numpy_helper

import genai_pipeline as gp
from genai_pipeline.errors import ImportRefusedError
from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.optimum import import_optimum
from genai_pipeline.importers.optimum.vision import tiles_text
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.importers.shared.preprocessor_config import image_program
from genai_pipeline.testing.media import COLOURS, write_vlm

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
    config = {"text_config": {"max_position_embeddings": 1024}, "eos_token_id": 1, "image_token_index": package.slot}
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


def test_tiles_are_seen_one_by_one_and_then_the_whole(source: Any, tmp_path: Path) -> None:
    package, folder = source
    one = onnx.load(folder / "onnx" / "vision_encoder.onnx")
    onnx.save(of_tiles(one), str(folder / "onnx" / "vision_encoder.onnx"))
    idefics = {
        "image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 8}, "do_image_splitting": True,
        "max_image_size": {"longest_edge": 4}, "resample": 1, "do_normalize": False, "do_pad": True,
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(idefics))
    (folder / "processor_config.json").write_text(json.dumps({"image_seq_len": 4}))
    import_optimum(folder, tmp_path / "made")
    assert gp.validate(tmp_path / "made")[1] == ()
    quarters = (1, 2, 4, 7)  # red, green, blue, white
    picture = np.zeros((8, 8, 3), np.uint8)
    for index, colour in enumerate(quarters):
        row, column = 4 * (index // 2), 4 * (index % 2)
        picture[row : row + 4, column : column + 4] = [255 * (colour >> bit & 1) for bit in range(3)]
    message = {"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "?"}]}
    with gp.load(tmp_path / "made") as pipe:
        tokens = list(pipe.generate(messages=[message], temperature=0, max_new_tokens=30).tokens)
    seen = [colour for colour in quarters for _ in range(4)] + list(quarters)
    assert tokens == [package.vocabulary.id(COLOURS[colour]) for colour in seen]


def of_tiles(model: onnx.ModelProto) -> onnx.ModelProto:
    """The encoder for pictures in tiles: ``pixel_values`` [batch, tiles, 3, 4, 4], a mask that it does not mind."""
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["flat" if name == "pixel_values" else name for name in node.input]
    graph.initializer.append(numpy_helper.from_array(np.array([-1, 3, 4, 4], np.int64), "one_by_one"))
    graph.node.insert(0, helper.make_node("Reshape", ["pixel_values", "one_by_one"], ["flat"]))
    del graph.input[:]
    shape: list[int | str] = ["batch", "tiles", 3, 4, 4]
    graph.input.append(helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, shape))
    mask: list[int | str] = ["batch", "tiles", 4, 4]
    graph.input.append(helper.make_tensor_value_info("pixel_attention_mask", TensorProto.BOOL, mask))
    return model


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (1, 2), (3, 2)])
def test_the_text_around_tiles_is_the_processors(rows: int, columns: int) -> None:
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as chat templates are rendered
    written = environment.from_string(tiles_text(5)).render(
        images={"tiles": [rows, columns]}, features=lambda count: IMAGE * count
    )
    marks = {"fake_token_around_image": "<fake_token_around_image>", "global_image_token": "<global-img>"}
    assert written == get_image_prompt_string(rows, columns, 5, image_token=IMAGE, **marks)

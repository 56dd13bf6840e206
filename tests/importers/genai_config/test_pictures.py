"""Models that see for onnxruntime-genai as packages: the tokens of the closed form, and of that runtime itself."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.cli.main import run_command
from genai_pipeline.importers.genai_config import import_genai_config

Folders = Callable[..., Any]
Steps = tuple[tuple[str, dict[str, Any] | None], ...]
COUNT = 8
SIDE = 16
BLOCK = 4
# Steps of processor_config.json for pictures of any size, as pixels and as patches.
FIRST: Steps = (("DecodeImage", {"color_space": "RGB"}),)
BUDGET: Steps = (
    ("Resize", {"smart_resize": 1, "min_pixels": 64, "max_pixels": 1200, "patch_size": BLOCK // 2, "merge_size": 2}),
)
NUMBERS: Steps = (("Rescale", None), ("Normalize", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}))
LAST: Steps = (("Permute3D", {"dims": [2, 0, 1]}),)
SIZED_STEPS: Steps = (*FIRST, *BUDGET, *NUMBERS, *LAST, ("PixtralImageSizes", None))
PATCHES = {"patch_size": BLOCK // 2, "temporal_patch_size": 2, "merge_size": 2}
PATCH_STEPS: Steps = (*FIRST, *BUDGET, *NUMBERS, ("PatchImage", PATCHES))
SLOTS = "\n\n<start_of_image>" + "<image_soft_token>" * 256 + "<end_of_image>\n\n"


def pictures(number: int, seed: int = 0) -> list[NDArray[np.uint8]]:
    """Pictures whose pixels have pure colours, so that no filter changes one of another size than theirs."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(0, 2, (SIDE, SIDE, 3)) * 255).astype(np.uint8) for _ in range(number)]


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture as a file."""
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


def imported(folder: Any, target: Path) -> Path:
    """The package, which has no problem at all."""
    import_genai_config(folder.path, target)
    _, problems = gp.validate(target)
    assert problems == ()
    return target


def halved(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Gives ports of a graph 16 bits."""
    model = onnx.load(path)
    for port in (*model.graph.input, *model.graph.output):
        if port.name in (*inputs, *outputs):
            port.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    for node in model.graph.node:
        node.input[:] = [f"{name}_wide" if name in inputs else name for name in node.input]
        node.output[:] = [f"{name}_wide" if name in outputs else name for name in node.output]
    for name in inputs:
        model.graph.node.insert(0, helper.make_node("Cast", [name], [f"{name}_wide"], to=onnx.TensorProto.FLOAT))
    for name in outputs:
        model.graph.node.append(helper.make_node("Cast", [f"{name}_wide"], [name], to=onnx.TensorProto.FLOAT16))
    onnx.save(model, path)


@pytest.mark.parametrize(("axes", "number"), [(3, 1), (3, 2), (2, 0), (2, 1)])
def test_tokens_are_those_of_the_closed_form_and_of_onnxruntime_genai(
    seeing_folder: Folders, tmp_path: Path, axes: int, number: int
) -> None:
    """Left out is what that runtime fails at: rows of three axes and no picture, of two axes and several."""
    folder, seen = seeing_folder(axes=axes), pictures(number)
    prompt = f"<|im_start|>user\n{'<start_of_image>' * number}what?<|im_end|>\n<|im_start|>assistant\n"
    tokens, theirs = folder.theirs(prompt, [png(picture) for picture in seen], COUNT)
    assert tokens == folder.vocabulary.encode(prompt.replace("<start_of_image>", SLOTS), parse_special=True)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        ours = pipe.generate("what?", images=seen, max_new_tokens=COUNT)
    assert ours.usage.prompt_tokens == len(tokens)
    assert list(ours.tokens) == folder.answer(tokens, seen, COUNT) == theirs


def blocks(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """A picture of blocks of 4 x 4 pixels in pure colours."""
    rng = np.random.default_rng(seed)
    small = (rng.integers(0, 2, (height // BLOCK, width // BLOCK, 3)) * 255).astype(np.uint8)
    return small.repeat(BLOCK, axis=0).repeat(BLOCK, axis=1)


@pytest.mark.parametrize("sizes", [[], [(12, 20)], [(16, 12), (16, 12)], [(12, 20), (8, 28)]])
def test_pictures_of_any_size_have_a_mark_behind_each_line(
    seeing_folder: Folders, tmp_path: Path, sizes: list[tuple[int, int]]
) -> None:
    folder = seeing_folder("mistral3", axes=2, steps=SIZED_STEPS)
    seen = [blocks(*size, seed=index) for index, size in enumerate(sizes)]
    marks = [f"[IMG]{index}:" for index in range(len(seen))]  # marks side by side are one picture there
    prompt = f"<|im_start|>user\n{''.join(marks)}what?<|im_end|>\n<|im_start|>assistant\n"
    files = [png(picture) for picture in seen]
    if len(set(sizes)) < 2:
        tokens, theirs = folder.theirs(prompt, files, COUNT)
        assert theirs == folder.answer(tokens, [p[::BLOCK, ::BLOCK] for p in seen], COUNT)
    else:
        with pytest.raises(RuntimeError, match="out of valid range"):  # it fails at pictures of several sizes
            folder.theirs(prompt, files, COUNT)
        tokens = folder.tokens(prompt, files)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        parts = [part for i in range(len(seen)) for part in ({"type": "image"}, {"type": "text", "text": f"{i}:"})]
        content = [*parts, {"type": "text", "text": "what?"}]
        ours = pipe.generate(messages=[{"role": "user", "content": content}], images=seen, max_new_tokens=COUNT)
    assert ours.usage.prompt_tokens == len(tokens)
    assert list(ours.tokens) == folder.answer(tokens, [p[::BLOCK, ::BLOCK] for p in seen], COUNT)


@pytest.mark.parametrize("length", [0, 80])
@pytest.mark.parametrize("sizes", [[], [(12, 20)], [(16, 8)]])
def test_patches_filled_up_to_one_length(
    seeing_folder: Folders, tmp_path: Path, sizes: list[tuple[int, int]], length: int
) -> None:
    """Its graphs take the patches, which of them count, and their lines and columns."""
    folder = seeing_folder("lfm2_vl", axes=2, steps=SIZED_STEPS)

    def edit(config: dict[str, Any]) -> None:
        names = {"attention_mask": "pixel_attention_mask", "image_sizes": "spatial_shapes"}
        config["model"]["vision"] |= {"max_num_patches": length, "inputs": {"pixel_values": "pixel_values", **names}}

    folder.reconfigure(edit)
    seen = [blocks(*size) for size in sizes]
    prompt = f"<|im_start|>user\n{'<image>' * len(seen)}what?<|im_end|>\n<|im_start|>assistant\n"
    tokens, theirs = folder.theirs(prompt, [png(picture) for picture in seen], COUNT)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        ours = pipe.generate("what?", images=seen, max_new_tokens=COUNT)
    assert ours.usage.prompt_tokens == len(tokens)
    assert list(ours.tokens) == folder.answer(tokens, [p[::BLOCK, ::BLOCK] for p in seen], COUNT) == theirs


@pytest.mark.parametrize("size", [(14, 18), (3, 40), (50, 61), (64, 4)])
def test_sides_are_chosen_as_there(seeing_folder: Folders, tmp_path: Path, size: tuple[int, int]) -> None:
    """Pictures that are resized, by rules that round other sides than transformers does."""
    folder = seeing_folder("mistral3", axes=2, steps=SIZED_STEPS)
    picture = np.random.default_rng(5).integers(0, 256, (*size, 3)).astype(np.uint8)
    _, theirs = folder.theirs("<|im_start|>user\n[IMG]?<|im_end|>\n<|im_start|>assistant\n", [png(picture)], COUNT)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        assert list(pipe.generate("?", images=[picture], max_new_tokens=COUNT).tokens) == theirs


@pytest.mark.parametrize("sizes", [[], [(16, 24)], [(16, 24), (8, 40)]])
def test_pictures_as_patches(seeing_folder: Folders, tmp_path: Path, sizes: list[tuple[int, int]]) -> None:
    folder = seeing_folder("qwen2_5_vl", axes=2, steps=PATCH_STEPS)
    seen = [blocks(*size, seed=index) for index, size in enumerate(sizes)]
    marks = "<|vision_start|><|image_pad|><|vision_end|>" * len(seen)
    prompt = f"<|im_start|>user\n{marks}what?<|im_end|>\n<|im_start|>assistant\n"
    tokens, theirs = folder.theirs(prompt, [png(picture) for picture in seen], COUNT)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        ours = pipe.generate("what?", images=seen, max_new_tokens=COUNT)
    assert ours.usage.prompt_tokens == len(tokens)
    assert list(ours.tokens) == folder.answer(tokens, [p[::BLOCK, ::BLOCK] for p in seen], COUNT) == theirs


def test_every_key_has_a_row(seeing_folder: Folders, tmp_path: Path) -> None:
    folder = seeing_folder()

    def edit(config: dict[str, Any]) -> None:
        config["model"] |= {"image_token_id": 7, "vision_start_token_id": 6, "video_token_id": 5, "audio_token_id": 4}
        config["model"]["vision"] |= {"tokens_per_second": 2.0, "window_size": 0, "run_options": {}}
        config["model"]["vision"]["session_options"] = {"provider_options": [], "intra_op_num_threads": 1}

    folder.reconfigure(edit)
    report = import_genai_config(folder.path, tmp_path / "made")
    rows = {(row.file, row.key): row for row in report.rows}
    assert not [row for row in report.rows if "no such key" in row.detail]
    assert rows["genai_config.json", "model.image_token_id"].outcome == "mapped"
    assert rows["genai_config.json", "model.vision.window_size"].outcome == "dropped"
    assert rows["processor_config.json", "processor.transforms[1]"].outcome == "mapped"
    assert "<image_soft_token>" in rows["chat_template.jinja", "<start_of_image>"].detail


def test_graphs_of_halves_give_the_same_tokens(seeing_folder: Folders, tmp_path: Path) -> None:
    """As folders for a GPU have them: pixels, rows and embeddings of 16 bits."""
    folder, seen = seeing_folder(), pictures(1)
    for file, inputs, outputs in (
        ("vision.onnx", ("pixel_values",), ("image_features",)),
        ("embedding.onnx", ("image_features",), ("inputs_embeds",)),
        ("model.onnx", ("inputs_embeds",), ()),
    ):
        halved(folder.path / file, inputs, outputs)
    prompt = "<|im_start|>user\n<start_of_image>what?<|im_end|>\n<|im_start|>assistant\n"
    tokens, theirs = folder.theirs(prompt, [png(seen[0])], COUNT)
    with gp.load(imported(folder, tmp_path / "made")) as pipe:
        ours = list(pipe.generate("what?", images=seen, max_new_tokens=COUNT).tokens)
    assert ours == folder.answer(tokens, seen, COUNT) == theirs


@pytest.mark.parametrize("update", ["in_place", "append"])
def test_rows_find_their_places_in_chunks_in_company_and_in_turns(
    seeing_folder: Folders, tmp_path: Path, update: str
) -> None:
    folder = seeing_folder(update=update)
    asked = [pictures(number, seed) for seed, number in enumerate((1, 0, 2, 1))]
    prompts = [f"<|im_start|>user\n{SLOTS * len(seen)}what?<|im_end|>\n<|im_start|>assistant\n" for seen in asked]
    tokens = [folder.vocabulary.encode(prompt, parse_special=True) for prompt in prompts]
    wanted = [folder.answer(ids, seen, COUNT) for ids, seen in zip(tokens, asked, strict=True)]
    with gp.load(imported(folder, tmp_path / "made"), prefill_chunk=100, max_batch=4) as pipe:
        streams = [pipe.stream("what?", images=seen, max_new_tokens=COUNT) for seen in asked]
        found = [[event.token for event in stream if event.token is not None] for stream in streams]
        assert found == wanted
        again = pipe.generate("what?", images=asked[2], max_new_tokens=COUNT)
        assert (list(again.tokens), again.usage.cached_tokens > 256) == (wanted[2], True)
        with pipe.session() as session:
            first = session.chat("what?", images=asked[0], max_new_tokens=COUNT)
            assert list(first.tokens) == wanted[0]
            assert session.chat("and?", images=asked[3], max_new_tokens=COUNT).usage.cached_tokens > 256


def test_the_command_takes_pictures(seeing_folder: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, seen = seeing_folder(), pictures(2)
    files = [tmp_path / f"{index}.png" for index in range(2)]
    for file, picture in zip(files, seen, strict=True):
        file.write_bytes(png(picture))
    made = str(imported(folder, tmp_path / "made"))
    ids = folder.vocabulary.encode(
        f"<|im_start|>user\n{SLOTS * 2}what?<|im_end|>\n<|im_start|>assistant\n", parse_special=True
    )
    shown = [option for file in files for option in ("--image", str(file))]
    assert run_command(["run", made, "what?", *shown, "--max-new-tokens", str(COUNT), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == folder.answer(ids, seen, COUNT)
    assert run_command(["validate", made, "--run"]) == 0


def fixed(folder: Any, *lead: int | str) -> None:
    """Gives the port of rows other axes in front of its width."""
    model = onnx.load(folder.path / "embedding.onnx")
    (port,) = (port for port in model.graph.input if port.name == "image_features")
    for dim, size in zip(port.type.tensor_type.shape.dim, lead, strict=False):
        if isinstance(size, int):
            dim.dim_value = size
        else:
            dim.dim_param = size
    onnx.save(model, folder.path / "embedding.onnx")


@pytest.mark.parametrize(
    ("lead", "empty"),
    [(("n", 256), (0, 256)), (("n", "m"), (1, 0)), ((1, "m"), (1, 0)), (("m",), (0,))],
)
def test_no_rows_have_the_shape_of_their_port(
    seeing_folder: Folders, tmp_path: Path, lead: tuple[int | str, ...], empty: tuple[int, ...]
) -> None:
    folder, seen = seeing_folder(axes=len(lead) + 1), pictures(1)
    fixed(folder, *lead)
    prompts = [f"<|im_start|>user\n{SLOTS * n}what?<|im_end|>\n<|im_start|>assistant\n" for n in (0, 1)]
    tokens = [folder.vocabulary.encode(prompt, parse_special=True) for prompt in prompts]
    made = imported(folder, tmp_path / "made")
    assert np.load(made / "no_images.npy").shape[:-1] == empty
    with gp.load(made) as pipe:
        for ids, images in zip(tokens, ([], seen), strict=True):
            ours = pipe.generate("what?", images=images, max_new_tokens=COUNT)
            assert list(ours.tokens) == folder.answer(ids, images, COUNT)

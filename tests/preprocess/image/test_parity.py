"""Programs in YAML against the image processors of transformers, on every size and mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

Build = Callable[[str], Program]
Draw = Callable[..., Image.Image]
Sizes = tuple[tuple[int, int], ...]
Fields = Mapping[str, Any]

TOLERANCE = 1e-5
STRETCHED = 200  # sides that differ more are refused by the pixel budget


def pictures(draw: Draw, sizes: Sizes, modes: tuple[str, ...]) -> Iterator[tuple[str, Image.Image]]:
    """Every size, each in two modes, so that all modes come up."""
    for index, (height, width) in enumerate(sizes):
        for offset in (0, 7):
            mode = modes[(index + offset) % len(modes)]
            yield f"{mode} {height}x{width}", draw(mode, height, width, index)


def compare(build: Build, file: str, processor: Any, images: Iterator[tuple[str, Image.Image]], **fields: str) -> int:
    """Our fields against the processor's; ``fields``: ours = theirs. How many pictures agreed."""
    ours, count = build(file), 0
    for name, image in images:
        found, wanted = ours.run(image, {}), reference(processor, image)
        expected = np.asarray(wanted["pixel_values"])
        np.testing.assert_allclose(
            found["pixels"].reshape(expected.shape), expected, rtol=0, atol=TOLERANCE, err_msg=name, strict=True
        )
        assert found["pixels"].dtype == np.float32
        assert found["pixels"].flags.c_contiguous
        assert list(found["original"]) == [image.height, image.width]
        for field, key in fields.items():
            theirs = np.asarray(wanted[key])
            np.testing.assert_array_equal(np.asarray(found[field]).reshape(theirs.shape), theirs, err_msg=name)
        count += 1
    return count


def reference(processor: Any, image: Image.Image) -> Fields:
    extra = {"return_row_col_info": True} if hasattr(processor, "return_row_col_info") else {}
    result: Fields = processor(image, return_tensors="np", **extra)
    return result


def test_clip(program: Build, draw: Draw, upright_sizes: Sizes, modes: tuple[str, ...]) -> None:
    images = pictures(draw, upright_sizes, modes)
    assert compare(program, "clip.yaml", CLIPImageProcessorPil(), images) == 48


def test_siglip(program: Build, draw: Draw, upright_sizes: Sizes, modes: tuple[str, ...]) -> None:
    images = pictures(draw, upright_sizes, modes)
    assert compare(program, "siglip.yaml", SiglipImageProcessorPil(), images) == 48


def test_every_mode_in_one_size(program: Build, draw: Draw, modes: tuple[str, ...]) -> None:
    images = ((mode, draw(mode, 61, 47, seed)) for mode in modes for seed in (1, 8))
    assert compare(program, "siglip.yaml", SiglipImageProcessorPil(), images) == 2 * len(modes)


def test_qwen2_vl(program: Build, draw: Draw, upright_sizes: Sizes, modes: tuple[str, ...]) -> None:
    processor = Qwen2VLImageProcessorPil()
    sizes = tuple(size for size in upright_sizes if max(size) <= STRETCHED * min(size))
    large = ((1200, 1100), (2000, 700), (700, 1999))
    images = pictures(draw, (*sizes, *large), modes)
    assert compare(program, "qwen2_vl.yaml", processor, images, grid="image_grid_thw") == 2 * (len(sizes) + 3) >= 40


def test_qwen2_vl_counts_the_features_of_merged_patches(program: Build, draw: Draw) -> None:
    item = program("qwen2_vl.yaml").run(draw("RGB", 300, 200), {})
    assert (item["tokens"], item["grid"].tolist()) == (22 * 14 // 4, [1, 22, 14])
    assert item["mask"].tolist() == [1] * 22 * 14


def test_qwen2_vl_refuses_what_the_processor_refuses(program: Build, draw: Draw) -> None:
    image = draw("RGB", 300, 1)
    with pytest.raises(ValueError, match="aspect ratio"):
        Qwen2VLImageProcessorPil()(image)
    with pytest.raises(MediaError, match="300 x 1") as caught:
        program("qwen2_vl.yaml").run(image, {}, param="images")
    assert caught.value.param == "images"


@pytest.mark.parametrize("processor", [Idefics3ImageProcessorPil, SmolVLMImageProcessorPil])
def test_idefics3(
    processor: type[Any], program: Build, draw: Draw, upright_sizes: Sizes, modes: tuple[str, ...]
) -> None:
    images = (
        (f"{modes[index % len(modes)]} {size}", draw(modes[index % len(modes)], *size, index))
        for index, size in enumerate(upright_sizes)
    )
    assert compare(program, "idefics3.yaml", processor(), images, mask="pixel_attention_mask") == len(upright_sizes)


def test_idefics3_counts_rows_and_columns(program: Build, draw: Draw, upright_sizes: Sizes) -> None:
    processor, ours = Idefics3ImageProcessorPil(), program("idefics3.yaml")
    for height, width in ((480, 640), (1, 150), (1000, 333), (90, 90)):
        image = draw("RGB", height, width)
        wanted = reference(processor, image)
        assert ours.run(image, {})["tiles"].tolist() == [wanted["rows"][0][0], wanted["cols"][0][0]]


def test_a_picture_of_one_tile_stays_alone(program: Build, draw: Draw) -> None:
    ours = program("""
    - decode: {}
    - tile: {size: [364, 364], single: keep, thumbnail: last}
    - rescale: {}
    - normalize: {mean: [0.5], std: [0.5]}
    """)
    image = draw("RGB", 364, 364)
    processor = Idefics3ImageProcessorPil(do_resize=False)
    item = ours.run(image, {})
    np.testing.assert_allclose(item["pixels"], reference(processor, image)["pixel_values"][0], rtol=0, atol=TOLERANCE)
    assert item["tiles"].tolist() == [0, 0]


def test_llava_next(program: Build, draw: Draw, upright_sizes: Sizes, modes: tuple[str, ...]) -> None:
    images = pictures(draw, upright_sizes, modes)
    count = compare(program, "llava_next.yaml", LlavaNextImageProcessorPil(), images, original="image_sizes")
    assert count == 48


def test_siglip2(program: Build, draw: Draw, upright_sizes: Sizes) -> None:
    """Patches with the channels last, filled up to a length, with a mask."""
    ours = """
    - decode: {}
    - resize: {fit: patch_budget, patch: 16, max_patches: 256, resample: bilinear}
    - rescale: {}
    - normalize: {mean: [0.5], std: [0.5]}
    - patchify: {patch: 16, order: channels_last, length: 256}
    """
    images = ((f"{size}", draw("RGB", *size)) for size in upright_sizes)
    assert compare(program, ours, Siglip2ImageProcessorPil(), images, mask="pixel_attention_mask") == 24

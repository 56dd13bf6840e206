"""Single steps, on pictures whose right answer can be written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

Build = Callable[[str], Program]
Draw = Callable[..., Image.Image]

COUNTED = np.arange(1, 13, dtype=np.uint8).reshape(3, 4)  # rows of 1 2 3 4


def run(program: Build, steps: str, source: Any = COUNTED, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    text = f"[{{decode: {{mode: L}}}}, {steps}]"
    return program(text).run(source, parameters or {}, param="images")


def shown(item: dict[str, Any]) -> list[Any]:
    """Pixels of the one channel, as whole numbers."""
    pixels = item["pixels"]
    return np.squeeze(pixels, -3).astype(int).tolist()  # type: ignore[no-any-return]


PLAIN = "{rescale: {factor: 1}}"


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        ("size: [1, 2]", [[6, 7]]),
        ("size: [2, 2]", [[2, 3], [6, 7]]),  # half a pixel goes to the end
        ("size: [2, 2], align: start", [[1, 2], [5, 6]]),
        ("size: [4, 2]", [[0, 0], [2, 3], [6, 7], [10, 11]]),  # the odd row of the filling comes first
        ("size: [3, 7], fill: [9]", [[9, 9, 1, 2, 3, 4, 9], [9, 9, 5, 6, 7, 8, 9], [9, 9, 9, 10, 11, 12, 9]]),
    ],
)
def test_crop(params: str, wanted: list[list[int]], program: Build) -> None:
    assert shown(run(program, f"{{crop: {{{params}}}}}, {PLAIN}")) == wanted
    assert shown(run(program, f"{PLAIN}, {{crop: {{{params}}}}}")) == wanted


def test_pad_tells_what_is_picture(program: Build) -> None:
    item = run(program, f"{{pad: {{size: [4, 5], fill: [7]}}}}, {PLAIN}")
    assert shown(item) == [[1, 2, 3, 4, 7], [5, 6, 7, 8, 7], [9, 10, 11, 12, 7], [7] * 5]
    assert item["mask"].tolist() == [[1, 1, 1, 1, 0]] * 3 + [[0] * 5]
    assert item["mask"].dtype == np.int64
    centred = run(program, f"{{pad: {{shape: square, align: center}}}}, {PLAIN}")
    assert shown(centred) == [*COUNTED.tolist(), [0] * 4]
    assert run(program, f"{PLAIN}, {{pad: {{multiple: 4}}}}")["pixels"].shape == (1, 4, 4)
    assert run(program, f"{PLAIN}, {{pad: {{fill: [-1.5], size: [4, 4]}}}}")["pixels"][0, 3].tolist() == [-1.5] * 4


def test_pad_fills_channels(program: Build, draw: Draw) -> None:
    text = "[{decode: {}}, {pad: {shape: square, align: center, fill: [1, 2, 3]}}, {rescale: {factor: 1}}]"
    pixels = program(text).run(draw("RGB", 2, 6), {})["pixels"]
    assert pixels.shape == (3, 6, 6)
    assert pixels[:, 0, 0].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(pixels[:, 2:4], np.moveaxis(np.asarray(draw("RGB", 2, 6)), -1, 0))


def test_pad_to_the_box_of_a_resize(program: Build) -> None:
    item = run(program, f"{{resize: {{fit: contain, size: [8, 8]}}}}, {{pad: {{align: center}}}}, {PLAIN}")
    assert item["pixels"].shape == (1, 8, 8)
    assert item["mask"].sum(0).tolist() == [6] * 8
    assert item["mask"][0].tolist() == [0] * 8


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("{pad: {size: [2, 9]}}", "3 x 4 pixels cannot be padded to 2 x 9"),
        ("{pad: {}}", "no resize before it"),
        ("{pad: {size: [9, 9], fill: [0.5]}}", "whole numbers from 0 to 255"),
        ("{pad: {size: [100000, 100000]}}", "would have 100000 x 100000"),
        ("{crop: {size: [100000, 100000]}}", "would have 100000 x 100000"),
        ("{tile: {size: [2, 2]}}", r"differ in size: 1 x 2, 2 x 2"),
        ("{tile: {grid: [4, 4]}}", "3 pixels cannot be cut into 4"),
        ("{resize: {fit: pixel_budget, multiple: 1, min_pixels: 1, max_pixels: 9, max_ratio: 1.3}}", "3 x 4"),
    ],
)
def test_what_a_picture_does_not_allow(steps: str, message: str, program: Build) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        run(program, f"{steps}, {PLAIN}")
    assert caught.value.param == "images"
    assert caught.value.hint or "values for" in message


def test_tiles_come_row_by_row(program: Build) -> None:
    wide = np.arange(24, dtype=np.uint8).reshape(4, 6)
    item = run(program, f"{{tile: {{size: [2, 2]}}}}, {PLAIN}", wide)
    assert item["tiles"].tolist() == [2, 3]
    assert item["pixels"].shape == (6, 1, 2, 2)
    assert shown(item) == [
        [[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]],
        [[12, 13], [18, 19]], [[14, 15], [20, 21]], [[16, 17], [22, 23]],
    ]  # fmt: skip
    by_grid = run(program, f"{{tile: {{grid: [2, 3]}}}}, {PLAIN}", wide)
    np.testing.assert_array_equal(by_grid["pixels"], item["pixels"])


@pytest.mark.parametrize(("where", "index"), [("first", 0), ("last", 6)])
def test_thumbnails(where: str, index: int, program: Build, draw: Draw) -> None:
    image = draw("RGB", 40, 60)
    text = f"[{{decode: {{}}}}, {{tile: {{size: [20, 20], thumbnail: {where}, resample: bicubic}}}}, {PLAIN}]"
    item = program(text).run(image, {})
    assert item["tiles"].tolist() == [2, 3]
    assert item["pixels"].shape == (7, 3, 20, 20)
    whole = np.asarray(image.resize((20, 20), Image.Resampling.BICUBIC))
    np.testing.assert_array_equal(item["pixels"][index], np.moveaxis(whole, -1, 0))


def test_a_thumbnail_of_the_original(program: Build, draw: Draw) -> None:
    image = draw("RGB", 33, 61)
    text = f"""
    - decode: {{}}
    - resize: {{size: [20, 20], resample: nearest}}
    - tile: {{grid: [2, 2], thumbnail: last, thumbnail_of: ORIGIN, resample: bicubic}}
    - {PLAIN[1:-1]}
    """
    of_original = program(text.replace("ORIGIN", "original")).run(image, {})["pixels"][4]
    np.testing.assert_array_equal(of_original, np.moveaxis(np.asarray(image.resize((10, 10), 3)), -1, 0))
    of_cut = program(text.replace("ORIGIN", "cut")).run(image, {})["pixels"][4]
    assert np.abs(of_cut - of_original).max() > 0


def test_one_tile(program: Build) -> None:
    cut = run(program, f"{{tile: {{size: [3, 4], thumbnail: last}}}}, {PLAIN}")
    assert (cut["tiles"].tolist(), len(cut["pixels"])) == ([1, 1], 2)
    kept = run(program, f"{{tile: {{size: [9, 9], thumbnail: last, single: keep}}}}, {PLAIN}")
    assert (kept["tiles"].tolist(), kept["pixels"].shape) == ([0, 0], (1, 1, 3, 4))


def test_too_many_tiles(program: Build) -> None:
    for step in ("{resize: {size: [9000, 9000]}}", "{pad: {size: [9000, 9000]}}", "{crop: {size: [9000, 9000]}}"):
        with pytest.raises(MediaError, match="would have 36000 x 9000 pixels"):
            run(program, f"{{tile: {{size: [2, 2]}}}}, {step}, {PLAIN}", np.zeros((4, 4), np.uint8))
    with pytest.raises(MediaError, match="2000 x 1 tiles"):
        run(program, f"{{tile: {{size: [1, 1]}}}}, {PLAIN}", np.zeros((2000, 1), np.uint8))


def test_rescale_and_normalize(program: Build, draw: Draw) -> None:
    assert run(program, "{rescale: {factor: 0.5, offset: -1}}")["pixels"][0, 0].tolist() == [-0.5, 0, 0.5, 1]
    image = draw("RGB", 5, 6)
    text = "[{decode: {}}, {rescale: {}}, {normalize: {mean: [0.1, 0.2, 0.3], std: [0.5, 1, 2]}}]"
    pixels = program(text).run(image, {})["pixels"]
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([0.5, 1, 2])
    expected = np.moveaxis((np.asarray(image).astype(np.float64) / 255 - mean) / std, -1, 0)
    np.testing.assert_allclose(pixels, expected, atol=1e-6)


def test_layout(program: Build, draw: Draw) -> None:
    image = draw("RGB", 5, 6)
    text = "[{decode: {}}, {rescale: {factor: 1}}, {layout: {LAYOUT}}]"
    array = np.asarray(image)
    for layout, wanted in {
        "": array.transpose(2, 0, 1),
        "axes: hwc": array,
        "channels: reverse": array[:, :, ::-1].transpose(2, 0, 1),
        "axes: hwc, channels: reverse": array[:, :, ::-1],
    }.items():
        pixels = program(text.replace("LAYOUT", layout)).run(image, {})["pixels"]
        np.testing.assert_array_equal(pixels, wanted)
        assert pixels.flags.c_contiguous
    tiled = "[{decode: {}}, {tile: {grid: [1, 2]}}, {rescale: {factor: 1}}, {layout: {axes: hwc}}]"
    np.testing.assert_array_equal(program(tiled).run(image, {})["pixels"], [array[:, :3], array[:, 3:]])


def test_patches_that_merge_are_neighbours(program: Build) -> None:
    rows = np.arange(32, dtype=np.uint8).reshape(4, 8)
    item = run(program, f"{PLAIN}, {{patchify: {{patch: 1, merge: 2, temporal: 2}}}}", rows)
    first = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]
    assert item["pixels"].tolist() == [[value, value] for value in [*first, *(value + 16 for value in first)]]
    assert (item["grid"].tolist(), item["tokens"]) == ([1, 4, 8], 8)
    whole = run(program, f"{PLAIN}, {{patchify: {{patch: 2}}}}", rows)
    assert whole["pixels"].tolist()[:2] == [[0, 1, 8, 9], [2, 3, 10, 11]]
    assert (whole["grid"].tolist(), whole["tokens"], whole["mask"].tolist()) == ([1, 2, 4], 8, [1] * 8)


def test_patches_up_to_a_length(program: Build) -> None:
    rows = np.arange(1, 9, dtype=np.uint8).reshape(2, 4)
    item = run(program, f"{PLAIN}, {{patchify: {{patch: 2, length: 3}}}}", rows)
    assert item["pixels"].tolist() == [[1, 2, 5, 6], [3, 4, 7, 8], [0] * 4]
    assert (item["mask"].tolist(), item["tokens"]) == ([1, 1, 0], 2)
    with pytest.raises(MediaError, match="has 2 patches"):
        run(program, f"{PLAIN}, {{patchify: {{patch: 2, length: 1}}}}", rows)
    with pytest.raises(MediaError, match="no whole blocks of 4"):
        run(program, f"{PLAIN}, {{patchify: {{patch: 2, merge: 2}}}}", rows)
    with pytest.raises(MediaError, match="the list of patches would have"):
        run(program, f"{PLAIN}, {{patchify: {{patch: 2, length: 1000000000}}}}", rows)


def test_order_of_a_patch(program: Build, draw: Draw) -> None:
    image = draw("RGB", 2, 2)
    array = np.asarray(image)
    text = "[{decode: {}}, {rescale: {factor: 1}}, {patchify: {patch: 2, temporal: 2, order: ORDER}}]"
    first = program(text.replace("ORDER", "channels_first")).run(image, {})["pixels"]
    np.testing.assert_array_equal(first.reshape(3, 2, 2, 2)[:, 1], array.transpose(2, 0, 1))
    last = program(text.replace("ORDER", "channels_last")).run(image, {})["pixels"]
    np.testing.assert_array_equal(last.reshape(2, 2, 2, 3)[1], array)
    swapped = program(text.replace("ORDER", "channels_last, channels: reverse")).run(image, {})["pixels"]
    np.testing.assert_array_equal(swapped.reshape(2, 2, 2, 3)[1], array[:, :, ::-1])


def test_scale_is_against_the_original(program: Build) -> None:
    item = run(program, f"{{resize: {{size: [6, 6]}}}}, {{resize: {{size: [12, 2]}}}}, {PLAIN}")
    assert item["scale"].tolist() == [4.0, 0.5]
    assert item["scale"].dtype == np.float32
    tiled = run(
        program, f"{{resize: {{size: [6, 8]}}}}, {{tile: {{grid: [2, 2]}}}}, {{resize: {{size: [9, 9]}}}}, {PLAIN}"
    )
    assert tiled["scale"].tolist() == [2.0, 2.0]


def test_rows_may_be_resampled_first(program: Build, draw: Draw) -> None:
    image = draw("RGB", 60, 9)
    text = f"[{{decode: {{}}}}, {{resize: {{size: [11, 40], resample: bicubic, passes: rows_first}}}}, {PLAIN}]"
    wanted = image.resize((40, 60), Image.Resampling.BICUBIC).resize((40, 11), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(program(text).run(image, {})["pixels"], np.asarray(wanted).transpose(2, 0, 1))


@pytest.mark.parametrize("resample", ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"])
def test_resample(resample: str, program: Build, draw: Draw) -> None:
    image = draw("RGB", 31, 22)
    text = f"[{{decode: {{}}}}, {{resize: {{size: [17, 40], resample: {resample}}}}}, {{rescale: {{factor: 1}}}}]"
    wanted = np.asarray(image.resize((40, 17), Image.Resampling[resample.upper()]))
    np.testing.assert_array_equal(program(text).run(image, {})["pixels"], np.moveaxis(wanted, -1, 0))


def test_parameters_of_the_request(program: Build) -> None:
    steps = f"{{resize: {{size: [parameters.height, 'parameters.height * 2'], resample: nearest}}}}, {PLAIN}"
    item = run(program, steps, parameters={"parameters.height": 5})
    assert item["pixels"].shape == (1, 5, 10)
    with pytest.raises(MediaError, match="at least 1") as caught:
        run(program, steps, parameters={"parameters.height": 0})
    assert caught.value.param == "images"
    with pytest.raises(MediaError, match=r"parameters\.height"):
        run(program, steps)

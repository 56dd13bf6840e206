"""Decoding: every way to give a picture, every orientation, every mode."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from genai_pipeline.errors import MediaError
from genai_pipeline.ops.media import Image as MadePicture
from genai_pipeline.preprocess.programs import Program

Build = Callable[[str], Program]
Draw = Callable[..., Image.Image]
Encode = Callable[..., bytes]

PLAIN = "[{decode: {}}, {rescale: {factor: 1}}, {layout: {axes: hwc}}]"
ORIENTATION = 0x0112
# What brings an upright picture into the order in which a file with that orientation stores it.
STORED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: np.rot90(a, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: np.rot90(a, -1),
}


def given_as(way: str, data: bytes, folder: Path) -> Any:
    """The same bytes in each way a request may give them."""
    path = folder / "picture"
    path.write_bytes(data)
    return {
        "path": path,
        "text path": str(path),
        "bytes": data,
        "bytearray": bytearray(data),
        "data url": f"data:image/jpeg;base64,{base64.b64encode(data).decode()}",
        "file": io.BytesIO(data),
        "opened": Image.open(io.BytesIO(data)),
    }[way]


WAYS = ("path", "text path", "bytes", "bytearray", "data url", "file", "opened")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("tag", range(1, 9))
def test_pictures_are_upright_however_they_are_given(
    tag: int, way: str, program: Build, draw: Draw, encode: Encode, tmp_path: Path
) -> None:
    upright = np.asarray(draw("RGB", 16, 24))
    exif = Image.Exif()
    exif[ORIENTATION] = tag
    data = encode(Image.fromarray(np.ascontiguousarray(STORED[tag](upright))), "JPEG", exif=exif, quality=95)
    item = program(PLAIN).run(given_as(way, data, tmp_path), {})
    expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    assert item["original"].tolist() == [16, 24]
    np.testing.assert_array_equal(item["pixels"], expected)
    assert np.abs(item["pixels"] - upright).mean() < 10  # the same picture, but for the loss of JPEG


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("tag", range(1, 9))
def test_orientation_counts_in_every_format(tag: int, kind: str, program: Build, draw: Draw, encode: Encode) -> None:
    upright = np.asarray(draw("RGB", 16, 24))
    exif = Image.Exif()
    exif[ORIENTATION] = tag
    options = {"WEBP": {"lossless": True, "exact": True}}.get(kind, {})
    data = encode(Image.fromarray(np.ascontiguousarray(STORED[tag](upright))), kind, exif=exif, **options)
    np.testing.assert_array_equal(program(PLAIN).run(data, {})["pixels"], upright)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"])
def test_formats(kind: str, program: Build, draw: Draw, encode: Encode) -> None:
    data = encode(draw("RGB", 13, 22), kind)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(program(PLAIN).run(data, {})["pixels"], expected)


def test_the_first_frame_counts(program: Build, encode: Encode) -> None:
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "green", "blue")]
    for kind in ("GIF", "WEBP", "TIFF", "PNG"):
        data = encode(
            frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
        )
        pixels = program(PLAIN).run(data, {})["pixels"]
        assert (pixels == [255, 0, 0]).all(), kind


@pytest.mark.parametrize("size", [(1, 1), (3, 5)])
def test_every_mode_gives_three_channels(
    size: tuple[int, int], program: Build, draw: Draw, encode: Encode, modes: tuple[str, ...]
) -> None:
    ours = program(PLAIN)
    for mode in modes:
        assert ours.run(draw(mode, *size), {})["pixels"].shape == (*size, 3), mode
    for mode in ("1", "L", "LA", "P with alphas", "RGBA", "I;16"):
        image = draw(mode, *size)
        stored = ours.run(encode(image, "PNG"), {})["pixels"]
        np.testing.assert_array_equal(stored, ours.run(image, {})["pixels"], err_msg=mode)
    assert ours.run(encode(draw("CMYK", *size), "TIFF"), {})["pixels"].shape == (*size, 3)


def test_transparency(program: Build) -> None:
    image = Image.fromarray(np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], np.uint8))
    blended = program(PLAIN).run(image, {})["pixels"][0].tolist()
    assert blended == [[200, 100, 0], [255, 255, 255], [244, 224, 204]]  # 51 is a fifth
    dropped = program(PLAIN.replace("decode: {}", "decode: {alpha: drop}")).run(image, {})["pixels"][0].tolist()
    assert dropped == [[200, 100, 0]] * 3
    black = program(PLAIN.replace("decode: {}", "decode: {background: [0, 0, 0]}")).run(image, {})["pixels"][0].tolist()
    assert black == [[200, 100, 0], [0, 0, 0], [40, 20, 0]]
    kept = program(PLAIN.replace("decode: {}", "decode: {mode: RGBA}")).run(image, {})["pixels"][0].tolist()
    assert kept == np.asarray(image)[0].tolist()


def test_grey(program: Build, draw: Draw) -> None:
    grey = program(PLAIN.replace("decode: {}", "decode: {mode: L}"))
    image = draw("RGB", 4, 6)
    np.testing.assert_array_equal(grey.run(image, {})["pixels"][:, :, 0], np.asarray(image.convert("L")))
    assert grey.run(draw("RGBA", 4, 6), {})["pixels"].shape == (4, 6, 1)
    assert program("[{decode: {mode: L}}, {rescale: {}}]").run(image, {})["pixels"].shape == (1, 4, 6)


def test_samples_of_16_bits(program: Build, encode: Encode) -> None:
    levels = np.array([[0, 100, 128, 257, 32768, 65535]], np.uint16)
    clip, scale = program(PLAIN), program(PLAIN.replace("decode: {}", "decode: {deep: scale}"))
    for source in (
        Image.fromarray(levels),
        Image.fromarray(levels.astype(np.int32)),
        encode(Image.fromarray(levels), "PNG"),
    ):
        assert clip.run(source, {})["pixels"][0, :, 0].tolist() == [0, 100, 128, 255, 255, 255]
        assert scale.run(source, {})["pixels"][0, :, 0].tolist() == [0, 0, 0, 1, 128, 255]
    with pytest.raises(MediaError, match="no range"):
        scale.run(Image.fromarray(levels.astype(np.float32)), {})
    with pytest.raises(MediaError, match="beyond 16 bits"):
        scale.run(Image.fromarray(levels.astype(np.int32) + 1), {})


def test_arrays(program: Build, draw: Draw) -> None:
    ours, image = program(PLAIN), draw("RGB", 5, 7)
    array = np.asarray(image)
    np.testing.assert_array_equal(ours.run(array, {})["pixels"], array)
    np.testing.assert_array_equal(ours.run(array[:, ::-1], {})["pixels"], array[:, ::-1])
    np.testing.assert_array_equal(ours.run(array[:, :, 0], {})["pixels"], np.repeat(array[:, :, :1], 3, 2))
    np.testing.assert_array_equal(ours.run(array[:, :, :1], {})["pixels"], np.repeat(array[:, :, :1], 3, 2))
    np.testing.assert_array_equal(ours.run(MadePicture(array), {})["pixels"], array)
    rgba = draw("RGBA", 5, 7)
    np.testing.assert_array_equal(ours.run(np.asarray(rgba), {})["pixels"], ours.run(rgba, {})["pixels"])
    for wrong in (array.astype(np.float32), array[:, :, :2], array[None], array.astype(np.uint16)):
        with pytest.raises(MediaError, match="uint8" if wrong.dtype == np.uint8 else str(wrong.dtype)) as caught:
            ours.run(wrong, {}, param="images")
        assert caught.value.param == "images"
    with pytest.raises(MediaError, match="empty"):
        ours.run(array[:0], {})


def test_sources_are_left_as_they_were(program: Build, draw: Draw) -> None:
    array = np.asarray(draw("RGB", 5, 7)).copy()
    before = array.copy()
    program("[{decode: {}}, {rescale: {}}, {normalize: {mean: [0.5], std: [0.5]}}]").run(array, {})
    np.testing.assert_array_equal(array, before)

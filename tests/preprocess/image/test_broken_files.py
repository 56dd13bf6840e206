"""Truncated, corrupted and lying files, and bombs: a clear error or a picture, within bounds of memory and time."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, PngImagePlugin

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

Build = Callable[[str], Program]
Draw = Callable[..., Image.Image]
Encode = Callable[..., bytes]
Outcomes = list[tuple[str, str]]

# Pillow warns of odd metadata; that is no reason to refuse a picture.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")

KINDS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
ROOT = Path(__file__).parents[3]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def png(width: int, height: int, *extra: bytes) -> bytes:
    """A PNG file with a lying size: its data are two black rows of ten pixels."""
    return png_header(width, height) + b"".join(extra) + chunk(b"IDAT", zlib.compress(bytes(62))) + chunk(b"IEND", b"")


def riff(kind: bytes, body: bytes) -> bytes:
    inner = b"WEBP" + kind + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(inner)) + inner


def bombs(encode: Encode) -> Iterator[tuple[str, bytes]]:
    """Files of at most some kilobytes that say they are 50 000 pixels wide, or as wide as their format allows."""
    small = Image.new("RGB", (8, 8))
    yield "png", png(50_000, 50_000)
    yield "ppm", b"P6 50000 50000 255\n" + bytes(60)
    yield "gif", b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + encode(small, "GIF")[13:]
    yield "webp, lossy", riff(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 16383, 16383) + bytes(20))
    yield "webp, lossless", riff(b"VP8L", b"\x2f" + struct.pack("<I", 16382 | 16382 << 14) + bytes(20))
    yield "webp, extended", riff(b"VP8X", bytes(4) + (49_999).to_bytes(3, "little") * 2 + bytes(20))
    bmp = bytearray(encode(small, "BMP"))
    bmp[18:26] = struct.pack("<ii", 50_000, 50_000)
    yield "bmp", bytes(bmp)
    jpeg = encode(small, "JPEG")
    at = jpeg.index(b"\xff\xc0")
    yield "jpeg", jpeg[: at + 5] + struct.pack(">HH", 65_500, 65_500) + jpeg[at + 9 :]
    tiff = encode(small, "TIFF", tiffinfo={256: 8})
    yield "tiff", tiff_with(tiff, {256: 50_000, 257: 50_000})


def tiff_with(data: bytes, values: dict[int, int]) -> bytes:
    """A little-endian TIFF file with other values of some tags in its first directory."""
    changed = bytearray(data)
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    for entry in range(at + 2, at + 2 + 12 * count, 12):
        (tag,) = struct.unpack_from("<H", data, entry)
        if tag in values:
            struct.pack_into("<HII", changed, entry + 2, 4, 1, values[tag])
    return bytes(changed)


def many_scans(draw: Draw, encode: Encode) -> bytes:
    """A progressive JPEG of 2000 x 2000 pixels whose last scan is repeated a thousand times."""
    data = encode(Image.new("RGB", (2000, 2000), "gray"), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * 1000 + b"\xff\xd9"


def heavy(draw: Draw, encode: Encode) -> Iterator[tuple[str, bytes]]:
    """Honest sizes, with much beside the pixels: these are read, or refused, without the memory that they ask for."""
    small = draw("RGB", 10, 10)
    text = PngImagePlugin.PngInfo()
    text.add_text("note", "x" * 30_000_000, zip=True)
    yield "png, huge text", encode(small, "PNG", pnginfo=text)
    yield "png, huge profile", png(10, 2, chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(100_000_000))))
    yield "png, huge exif", png(10, 2, chunk(b"eXIf", b"II*\0\x08\0\0\0\xff\xff" + bytes(20_000_000)))
    yield (
        "jpeg, huge exif",
        encode(small, "JPEG")[:2]
        + b"".join(b"\xff\xe1\xff\xff" + b"Exif\0\0" + b"MM\0*\0\0\0\x08\xff\xff" + bytes(65_517) for _ in range(300))
        + encode(small, "JPEG")[2:],
    )
    frames = [Image.new("L", (100, 100), level % 256) for level in range(1000)]
    yield "gif, 1000 frames", encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
    yield "jpeg, 1000 scans", many_scans(draw, encode)
    yield "png, pixels missing", png(8000, 8000)
    yield "png, one row", encode(Image.new("RGB", (1_000_000, 1)), "PNG")
    yield "png, one column", encode(Image.new("RGB", (1, 1_000_000)), "PNG")
    yield "tiff, next directory is itself", tiff_cycle(encode(small, "TIFF"))


def tiff_cycle(data: bytes) -> bytes:
    changed = bytearray(data)
    (at,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, at)
    struct.pack_into("<I", changed, at + 2 + 12 * count, at)
    return bytes(changed)


def attempt(program: Program, data: bytes) -> npt.NDArray[np.float32] | MediaError:
    """What a program makes of a file; any other error fails the test."""
    try:
        pixels: npt.NDArray[np.float32] = program.run(data, {}, param="images")["pixels"]
    except MediaError as error:
        return error
    return pixels


def under_limits(corpus: list[tuple[str, bytes]], folder: Path) -> Outcomes:
    (folder / "corpus").write_bytes(pickle.dumps(corpus))
    script = Path(__file__).with_name("under_limits.py")
    command = [sys.executable, str(script), str(folder / "corpus"), str(folder / "outcomes.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [(name, outcome) for name, outcome in json.loads((folder / "outcomes.json").read_text())]
    assert len(found) == len(corpus)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_truncated_files_are_refused(kind: str, program: Build, draw: Draw, encode: Encode) -> None:
    data, ours = encode(draw("RGB", 24, 16), kind), program("[{decode: {}}, {rescale: {}}]")
    whole = ours.run(data, {})["pixels"]
    refused = 0
    for length in [*range(1, min(64, len(data))), *range(64, len(data), max(1, len(data) // 60))]:
        found = attempt(ours, data[:length])
        if isinstance(found, MediaError):
            assert found.param == "images"
            assert found.message.startswith("images")
            assert "BytesIO" not in found.message
            refused += 1
        else:
            np.testing.assert_array_equal(found, whole)  # nothing of the picture was cut off
    assert refused > 60


@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes_give_a_picture_or_an_error(kind: str, program: Build, draw: Draw, encode: Encode) -> None:
    data, ours = encode(draw("RGB", 24, 16), kind), program("[{decode: {max_pixels: 100000}}, {rescale: {}}]")
    rng = np.random.default_rng(list(kind.encode()))
    for _ in range(150):
        broken = np.frombuffer(data, np.uint8).copy()
        at = rng.integers(0, min(len(data), 400 if rng.random() < 0.7 else len(data)), rng.integers(1, 6))
        broken[at] = rng.integers(0, 256, at.size)
        found = attempt(ours, broken.tobytes())
        assert isinstance(found, MediaError) or (found.shape[0], found.dtype) == (3, np.float32)


def test_bombs_are_refused_by_their_header(encode: Encode, program: Build, tmp_path: Path) -> None:
    corpus = list(bombs(encode))
    for (name, _), (_, outcome) in zip(corpus, under_limits(corpus, tmp_path), strict=True):
        assert outcome.startswith("refused: images has "), (name, outcome)
        assert "pixels" in outcome, name
    with pytest.raises(MediaError, match="50000 x 50000") as caught:
        program("[{decode: {}}, {rescale: {}}]").run(corpus[0][1], {})
    assert str(2**26) in caught.value.hint


def test_heavy_files_stay_within_bounds(draw: Draw, encode: Encode, tmp_path: Path) -> None:
    outcomes = dict(under_limits(list(heavy(draw, encode)), tmp_path))
    for name in (
        "gif, 1000 frames",
        "png, huge exif",
        "jpeg, huge exif",
        "tiff, next directory is itself",
        "png, one row",
    ):
        assert outcomes[name] == "(3, 64, 64)", outcomes[name]
    for name in ("png, huge text", "jpeg, 1000 scans", "png, pixels missing"):
        assert outcomes[name].startswith("refused: images "), (name, outcomes[name])
    assert "scans" in outcomes["jpeg, 1000 scans"]


def test_fuzzed_files_stay_within_bounds(draw: Draw, encode: Encode, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    corpus = []
    for kind in KINDS:
        data = encode(draw("RGB", 300, 200), kind)
        for index in range(40):
            broken = np.frombuffer(data, np.uint8).copy()
            at = rng.integers(0, 64 if index % 2 else len(data), rng.integers(1, 4))
            broken[at] = rng.integers(0, 256, at.size)
            corpus.append((f"{kind} {index}", broken.tobytes()[: None if index % 5 else len(data) * 2 // 3]))
    outcomes = under_limits(corpus, tmp_path)
    assert all(outcome == "(3, 64, 64)" or outcome.startswith("refused: images ") for _, outcome in outcomes)
    assert sum(outcome.startswith("refused") for _, outcome in outcomes) > 60


def test_limits_of_a_program(program: Build, draw: Draw, encode: Encode) -> None:
    data = encode(draw("RGB", 40, 50), "PNG")
    exact = f"[{{decode: {{max_pixels: 2000, max_bytes: {len(data)}}}}}, {{rescale: {{}}}}]"
    assert program(exact).run(data, {})["pixels"].shape == (3, 40, 50)
    with pytest.raises(MediaError, match="50 x 40 pixels"):
        program(exact.replace("2000", "1999")).run(data, {})
    with pytest.raises(MediaError, match=f"more than {len(data) - 1} bytes"):
        program(exact.replace(str(len(data)), str(len(data) - 1))).run(data, {})
    for source in (draw("RGB", 40, 50), np.asarray(draw("RGB", 40, 50))):
        with pytest.raises(MediaError, match="50 x 40 pixels"):
            program(exact.replace("2000", "1999")).run(source, {})


def test_pictures_that_are_decoded_in_python_are_refused(program: Build) -> None:
    header = struct.pack("<IiiHHIIiiII", 40, 4, 1, 1, 8, 1, 6, 0, 0, 256, 0)  # 4 x 1, run-length coded
    body = b"BM" + struct.pack("<IHHI", 14 + 40 + 1024 + 6, 0, 0, 14 + 40 + 1024) + header + bytes(1024)
    with pytest.raises(MediaError, match="bmp_rle"):
        program("[{decode: {}}, {rescale: {}}]").run(body + b"\x04\x07\0\0\0\x01", {})
    with pytest.raises(MediaError, match="compressed in a way"):
        program("[{decode: {}}, {rescale: {}}]").run(b"P3 1 1 255\n1 2 3\n", {})


def test_what_is_no_picture(program: Build) -> None:
    ours = program("[{decode: {}}, {rescale: {}}]")
    for data in (b"hello, world", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"RIFF\x10\0\0\0WAVEfmt ", b"\0" * 100, b"<svg></svg>"):
        with pytest.raises(MediaError, match="no picture in a format") as caught:
            ours.run(data, {}, param="images")
        assert "PNG" in caught.value.hint


def test_shapes_too_extreme_to_resize_are_refused(program: Build) -> None:
    thin = np.zeros((1, 500_000, 3), np.uint8)
    with pytest.raises(MediaError, match="would have"):
        program("clip.yaml").run(thin, {})
    with pytest.raises(MediaError, match="would have"):  # the pass over its rows would be, though the result is small
        program("[{decode: {}}, {resize: {size: [4, 1000]}}, {rescale: {}}]").run(thin.reshape(500_000, 1, 3), {})

"""A hundred pictures leave nothing behind, and large ones take no more than their pixels ask for."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import psutil
from PIL import Image

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

Build = Callable[[str], Program]
Draw = Callable[..., Image.Image]
Encode = Callable[..., bytes]

FLAT = 30 * 2**20  # bytes; one picture that was kept in each round would be 100 MB of samples alone


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def test_memory_is_flat_over_a_hundred_pictures(program: Build, draw: Draw, encode: Encode) -> None:
    programs = [program(name) for name in ("clip.yaml", "siglip.yaml", "qwen2_vl.yaml", "llava_next.yaml")]
    files = [
        encode(draw(mode, 600 + 37 * seed, 560, seed), "PNG") for seed, mode in enumerate(("RGB", "RGBA", "L", "P"))
    ]
    files += [encode(draw("RGB", 640, 500), kind) for kind in ("JPEG", "WEBP", "GIF", "TIFF")]
    broken = [data[: len(data) * 2 // 3] for data in files]

    def one(index: int) -> None:
        programs[index % len(programs)].run(files[index % len(files)], {})
        with contextlib.suppress(MediaError):  # some formats still have a picture
            programs[index % len(programs)].run(broken[index % len(files)], {})

    for index in range(16):
        one(index)
    before = resident()
    for index in range(100):
        one(index)
    assert resident() - before < FLAT

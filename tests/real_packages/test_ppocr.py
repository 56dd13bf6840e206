"""ppocr: reads what is drawn, line by line, whichever way up, one picture or many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

import genai_pipeline as gp
from genai_pipeline.importers.pull import pull

RECEIPT = [
    *("Corner Grocery", "12 High Street", "Date: 2024-03-15", "Apples 1.5 kg 3.75", "Bread 2.40"),
    *("Milk 2 x 1.15 2.30", "Olive oil 8.99", "Subtotal 17.44", "Tax 7% 1.22", "Total due: $1,250.75"),
]


def draw(lines: Sequence[str], size: int = 32, ink: str = "black", paper: str = "white") -> Image.Image:
    """Lines in the font that pillow has itself, one under the other."""
    font = ImageFont.load_default(size)
    step = size * 9 // 5
    picture = Image.new("RGB", (17 * size, step * len(lines) + size), paper)
    pen = ImageDraw.Draw(picture)
    for index, line in enumerate(lines):
        pen.text((size, size // 2 + index * step), line, fill=ink, font=font)
    return picture


@pytest.fixture(scope="module")
def pipe() -> Iterator[gp.Pipeline]:
    with gp.load(pull("ppocr")) as loaded:
        yield loaded


def test_a_receipt_of_ten_lines_is_read_exactly(pipe: gp.Pipeline) -> None:
    outputs = pipe.run({"image": draw(RECEIPT)})
    assert outputs["lines"] == RECEIPT
    assert outputs["text"] == "\n".join(RECEIPT)
    boxes = np.asarray(outputs["boxes"])
    assert boxes.shape == (10, 4, 2)
    assert (np.diff(boxes[:, 0, 1]) > 0).all()


def test_it_is_read_from_a_file_and_in_other_colours(pipe: gp.Pipeline, tmp_path: Path) -> None:
    draw(RECEIPT, ink="white", paper="darkblue").save(tmp_path / "receipt.png")
    assert pipe.run({"image": tmp_path / "receipt.png"})["lines"] == RECEIPT


def test_lines_on_their_heads_are_turned(pipe: gp.Pipeline) -> None:
    lines = pipe.run({"image": draw(RECEIPT).rotate(180)})["lines"]
    assert lines[::-1] == RECEIPT


def test_a_picture_without_text_gives_none(pipe: gp.Pipeline) -> None:
    outputs = pipe.run({"image": Image.new("RGB", (300, 200), "white")})
    assert (outputs["text"], list(outputs["lines"])) == ("", [])


def test_columns_are_read_from_left_to_right(pipe: gp.Pipeline) -> None:
    picture = Image.new("RGB", (900, 160), "white")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(32)
    for text, place in (("right one", (600, 20)), ("left one", (40, 24)), ("below", (40, 100))):
        pen.text(place, text, fill="black", font=font)
    assert pipe.run({"image": picture})["lines"] == ["left one", "right one", "below"]


def test_eight_pictures_share_runs_and_have_the_answers_they_have_alone(
    pipe: gp.Pipeline, together: Any, shared_runs: Any
) -> None:
    requests = [{"image": draw(RECEIPT[i : i + 3])} for i in range(8)]
    alone = [pipe.run(request) for request in requests]
    assert [outputs["lines"] for outputs in alone] == [RECEIPT[i : i + 3] for i in range(8)]
    before = shared_runs(pipe)
    for ours, expected in zip(together(pipe, requests), alone, strict=True):
        assert ours["text"] == expected["text"]
        np.testing.assert_array_equal(ours["boxes"], expected["boxes"])
    assert shared_runs(pipe) > before

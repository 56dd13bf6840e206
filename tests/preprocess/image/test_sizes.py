"""The sizes that pictures are resized to, against the processors' own functions and written answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics3
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches

from genai_pipeline.preprocess.image.sizes import FITS, best_size

Size = tuple[int, int]
sizes = st.tuples(st.integers(1, 4000), st.integers(1, 4000))


def fitted(fit: str, picture: Size, /, **params: Any) -> Size:
    names = ("size", "edge", "sizes", "multiple", "round", "only")
    return FITS[fit](picture, {**dict.fromkeys(names), **params}).size


@settings(deadline=None, max_examples=300)
@given(sizes, st.sampled_from([14, 28, 32]), st.integers(1, 4000), st.integers(4000, 2_000_000))
def test_pixel_budget(size: Size, multiple: int, least: int, most: int) -> None:
    if max(size) <= 200 * min(size):
        wanted = smart_resize(*size, factor=multiple, min_pixels=least, max_pixels=most)
        assert fitted("pixel_budget", size, multiple=multiple, min_pixels=least, max_pixels=most) == wanted


@pytest.mark.parametrize(
    ("size", "budget", "wanted"),
    [
        ((14, 18), (4, 64, 1200), (16, 20)),
        ((65, 2), (4, 64, 1200), (64, 4)),
        ((18, 34), (4, 64, 1200), (20, 36)),
        ((60, 42), (4, 200, 3000), (60, 44)),
        ((18, 6), (4, 200, 3000), (24, 8)),
        ((18, 39), (6, 500, 900), (18, 42)),
        ((56, 5), (6, 500, 900), (78, 6)),
    ],
)
def test_whole_pixel_budget(size: Size, budget: tuple[int, int, int], wanted: Size) -> None:
    """Sizes of pictures that the step Resize of onnxruntime-extensions gave, each another one than transformers has."""
    multiple, least, most = budget
    bounds = {"multiple": multiple, "min_pixels": least, "max_pixels": most}
    assert fitted("whole_pixel_budget", size, **bounds) == wanted != fitted("pixel_budget", size, **bounds)


@settings(deadline=None, max_examples=150)
@given(sizes, st.sampled_from([14, 16]), st.integers(1, 1024))
def test_patch_budget(size: Size, patch: int, most: int) -> None:
    wanted = get_image_size_for_max_num_patches(*size, patch, most)
    assert fitted("patch_budget", size, patch=patch, max_patches=most) == wanted


@settings(deadline=None, max_examples=150)
@given(sizes, st.integers(1, 4), st.integers(4, 12))
def test_tile_budget(size: Size, least: int, most: int) -> None:
    columns, rows = get_optimal_tiled_canvas(size, (384, 384), least, most)
    found = fitted("tile_budget", size, size=[384, 384], min_tiles=least, max_tiles=most)
    assert found == (rows * 384, columns * 384)


@settings(deadline=None, max_examples=300)
@given(sizes, st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 1500)), min_size=1, max_size=6))
def test_best(size: Size, boxes: list[Size]) -> None:
    wanted = select_best_resolution(size, boxes)
    if wanted is not None:
        assert best_size(size, boxes) == wanted


@settings(deadline=None, max_examples=200)
@given(sizes, st.tuples(st.integers(1, 1500), st.integers(1, 1500)))
def test_contain(size: Size, box: Size) -> None:
    wanted = get_patch_output_size(np.empty((0, *size)), box, input_data_format="channels_first")
    assert fitted("contain", size, size=box) == wanted
    assert FITS["contain"](size, {"size": box}).canvas == box


@settings(deadline=None, max_examples=300)
@given(sizes, st.sampled_from([364, 1456, 2048]))
def test_longest_edge(size: Size, edge: int) -> None:
    wanted = idefics3.get_resize_output_image_size(np.empty((0, *size)), edge)
    assert fitted("longest_edge", size, edge=edge, multiple=2, round="up") == wanted


@pytest.mark.parametrize(
    ("size", "params", "wanted"),
    [
        ((100, 300), {"edge": 50}, (50, 150)),
        ((300, 100), {"edge": 50}, (150, 50)),
        ((100, 301), {"edge": 50}, (50, 150)),  # cut to whole pixels
        ((100, 300), {"edge": 50, "only": "enlarge"}, (100, 300)),
        ((30, 90), {"edge": 50, "only": "enlarge"}, (50, 150)),
        ((30, 90), {"edge": 50, "only": "reduce"}, (30, 90)),
        ((100, 300), {"edge": 50, "only": "reduce"}, (50, 150)),
        ((100, 330), {"edge": 64, "multiple": 32, "round": "nearest"}, (64, 224)),
        ((100, 330), {"edge": 64, "multiple": 32, "round": "down"}, (64, 192)),
        ((100, 330), {"edge": 64, "multiple": 32, "round": "up"}, (64, 224)),
        ((100, 330), {"edge": 64, "multiple": 32}, (64, 192)),
        ((900, 1000), {"edge": 736, "multiple": 32, "round": "nearest", "only": "enlarge"}, (896, 992)),
        ((3, 5), {"edge": 2, "multiple": 32}, (32, 32)),
    ],
)
def test_shortest_edge(size: Size, params: dict[str, Any], wanted: Size) -> None:
    assert fitted("shortest_edge", size, **params) == wanted


def test_longest_edge_has_a_box_to_pad_to() -> None:
    assert FITS["longest_edge"]((10, 20), {"edge": 8, "multiple": None, "round": None, "only": None}).canvas == (8, 8)
    assert fitted("longest_edge", (10, 20), edge=8) == (4, 8)
    assert fitted("longest_edge", (10, 20), edge=30, only="reduce") == (10, 20)


def test_multiple() -> None:
    assert fitted("multiple", (1092, 1456), multiple=364) == (1092, 1456)
    assert fitted("multiple", (970, 1456), multiple=364) == (1092, 1456)
    assert fitted("multiple", (1456, 2), multiple=364) == (1456, 364)

"""Models that see for onnxruntime-genai as packages: the tokens of the closed form, and of that runtime itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import genai_pipeline as gp
from genai_pipeline.importers.genai_config import import_genai_config

Folders = Callable[..., Any]
COUNT = 8
SIDE = 16
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

"""g2p-en: known words from the dictionary, others as the network spells them, alone and side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.importers.pull import pull

STRANGE = ["zyxquorb", "flibbertigibbet", "blorp", "frobnicate", "a'b", "q"]
BEGIN, END, LONGEST = 2, 3, 20


@pytest.fixture(scope="module")
def folder() -> Path:
    return pull("g2p-en")


@pytest.fixture(scope="module")
def pipe(folder: Path) -> Iterator[gp.Pipeline]:
    with gp.load(folder) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def spelled(folder: Path, run_graph: Callable[..., list[Any]]) -> dict[str, str]:
    """What the graphs say for each strange word, run by hand."""
    letters = (folder / "letters.txt").read_text(encoding="utf-8").split("\n")
    sounds = (folder / "phonemes.txt").read_text(encoding="utf-8").split("\n")
    found = {}
    for word in STRANGE:
        ids = np.array([[letters.index(c) if c in letters else 1 for c in word] + [letters.index("</s>")]])
        (hidden,) = run_graph(folder / "encoder.onnx", letters=ids, mask=np.ones_like(ids))
        token, said = BEGIN, []
        while len(said) < LONGEST:
            logits, hidden = run_graph(folder / "decoder.onnx", token=np.array([[token]]), hidden=hidden)
            token = int(logits.argmax())
            if token == END:
                break
            said.append(sounds[token])
        found[word] = " ".join(said)
    return found


def test_known_words_come_from_the_dictionary(pipe: gp.Pipeline) -> None:
    out = pipe.run({"prompt": "I have $2.50, don't you? The 3rd river."})
    assert out["phonemes"].split("   ") == [
        "AY1", "HH AE1 V", "T UW1", "D AA1 L ER0 Z", "AH0 N D", "F IH1 F T IY0", "S EH1 N T S ,", "D OW1 N T",
        "Y UW1 ? DH AH0", "TH ER1 D", "R IH1 V ER0 .",
    ]  # fmt: skip


def test_other_words_are_spelled_by_the_network(pipe: gp.Pipeline, spelled: dict[str, str]) -> None:
    out = pipe.run({"prompt": f"the {' '.join(STRANGE)} the"})
    assert out["phonemes"].split("   ") == ["DH AH0", *spelled.values(), "DH AH0"]


def test_words_of_all_requests_share_runs_and_change_nothing(
    pipe: gp.Pipeline, spelled: dict[str, str], together: Any, shared_runs: Any
) -> None:
    before = shared_runs(pipe)
    requests = [{"prompt": " ".join(STRANGE[number:] + STRANGE[:number])} for number in range(len(STRANGE))]
    for request, out in zip(requests, together(pipe, requests), strict=True):
        assert out["phonemes"].split("   ") == [spelled[word] for word in request["prompt"].split()]
    assert shared_runs(pipe) > before

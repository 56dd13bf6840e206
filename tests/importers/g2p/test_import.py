"""The graphs of a recurrent encoder-decoder compute what its formula says; dictionaries; archives that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.g2p import import_g2p, write_dictionary

LETTERS, SOUNDS, WIDTH, HIDDEN = 9, 7, 5, 6
Arrays = dict[str, NDArray[Any]]
RunGraph = Callable[..., list[Any]]


def archive(seed: int = 0) -> Arrays:
    rng = np.random.default_rng(seed)

    def random(*shape: int) -> NDArray[Any]:
        return rng.standard_normal(shape).astype(np.float32)

    found: Arrays = {"fc_w": random(SOUNDS, HIDDEN), "fc_b": random(SOUNDS)}
    for side, symbols in (("enc", LETTERS), ("dec", SOUNDS)):
        found[f"{side}_emb"] = random(symbols, WIDTH)
        found[f"{side}_w_ih"], found[f"{side}_b_ih"] = random(3 * HIDDEN, WIDTH), random(3 * HIDDEN)
        found[f"{side}_w_hh"], found[f"{side}_b_hh"] = random(3 * HIDDEN, HIDDEN), random(3 * HIDDEN)
    return found


def step(arrays: Mapping[str, NDArray[Any]], side: str, symbol: int, state: NDArray[Any]) -> NDArray[Any]:
    """The next state, in float64: gates in the order reset, update, new."""
    given = arrays[f"{side}_w_ih"] @ arrays[f"{side}_emb"][symbol].astype(np.float64) + arrays[f"{side}_b_ih"]
    past = arrays[f"{side}_w_hh"] @ state + arrays[f"{side}_b_hh"]
    reset, update = (1 / (1 + np.exp(-(given + past)[at * HIDDEN : (at + 1) * HIDDEN])) for at in (0, 1))
    new = np.tanh(given[2 * HIDDEN :] + reset * past[2 * HIDDEN :])
    return np.asarray((1 - update) * new + update * state)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    np.savez(tmp_path / "arrays.npz", **archive())
    import_g2p(tmp_path / "arrays.npz", tmp_path / "package")
    return tmp_path / "package"


def test_the_encoder_ends_each_row_at_its_last_letter(imported: Path, run_graph: RunGraph) -> None:
    words = [[1, 2, 3, 8], [4], [5, 0, 7]]
    letters, mask = np.zeros((3, 5), np.int64), np.zeros((3, 5), np.int64)
    for row, word in enumerate(words):
        letters[row, : len(word)], mask[row, : len(word)] = word, 1
    encoder = imported / "encoder.onnx"
    (hidden,) = run_graph(encoder, letters=letters, mask=mask)
    for row, word in enumerate(words):
        state = np.zeros(HIDDEN)
        for letter in word:
            state = step(archive(), "enc", letter, state)
        np.testing.assert_allclose(hidden[row], state, atol=1e-6)
        size = len(word)
        (alone,) = run_graph(encoder, letters=letters[row : row + 1, :size], mask=np.ones((1, size), np.int64))
        np.testing.assert_array_equal(hidden[row], alone[0])


def test_a_step_of_the_decoder(imported: Path, run_graph: RunGraph) -> None:
    before = np.random.default_rng(1).standard_normal((2, HIDDEN)).astype(np.float32)
    logits, after = run_graph(imported / "decoder.onnx", token=np.array([[3], [6]]), hidden=before)
    assert logits.shape == (2, 1, SOUNDS)
    for row, token in enumerate((3, 6)):
        state = step(archive(), "dec", token, before[row])
        np.testing.assert_allclose(after[row], state, atol=1e-6)
        np.testing.assert_allclose(logits[row, 0], archive()["fc_w"] @ state + archive()["fc_b"], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc_b": None}, "the checkpoint has no array 'fc_b'"),
        ({"enc_w_hh": np.zeros((3 * HIDDEN, HIDDEN + 1), np.float32)}, "'enc_w_ih' has the shape"),
        ({"dec_b_ih": np.zeros(2, np.float32)}, r"'dec_b_ih' has the shape \[2\] where \[18\] fits"),
        ({"enc_emb": np.zeros((LETTERS, WIDTH), np.int64)}, "'enc_emb' is int64 with 2 axes"),
        ({"fc_w": np.zeros((SOUNDS, 3), np.float32)}, "'fc_w' has the shape"),
    ],
)
def test_archives_that_do_not_fit_are_refused(tmp_path: Path, change: Mapping[str, Any], message: str) -> None:
    arrays = {**archive(), **change}
    np.savez(tmp_path / "arrays.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ImportModelError, match=message):
        import_g2p(tmp_path / "arrays.npz", tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arrays.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ImportModelError, match="is no archive of numpy arrays"):
        import_g2p(tmp_path / "arrays.npz", tmp_path / "package")


def test_dictionaries_keep_the_first_way_to_speak_a_word(tmp_path: Path) -> None:
    text = ";;; comment\na AH0\na(2) EY1\nHAVE HH AE1 V # note\n\ncan't  K AE1 N T\n"
    (tmp_path / "words.dict").write_text(text, encoding="utf-8")
    write_dictionary(tmp_path / "words.dict", tmp_path)
    found = json.loads((tmp_path / "dictionary.json").read_text(encoding="utf-8"))
    assert found == {"a": "AH0", "have": "HH AE1 V", "can't": "K AE1 N T"}


def test_a_word_without_phonemes_is_named(tmp_path: Path) -> None:
    (tmp_path / "words.dict").write_text("a AH0\nbad\n", encoding="utf-8")
    with pytest.raises(ImportModelError, match="line 2: 'bad' has no phonemes"):
        write_dictionary(tmp_path / "words.dict", tmp_path)

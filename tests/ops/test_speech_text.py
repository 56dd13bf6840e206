"""From text to ids: words with their marks, phonemes of sentences, ids with padding between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import PackageError, RequestError
from genai_pipeline.metadata.call_parameters import call_values
from genai_pipeline.metadata.operations import OPERATIONS
from genai_pipeline.ops.context import OpContext
from genai_pipeline.ops.registry import operation

KNOWN = {"the": "DH AH0", "cat": "K AE1 T", "sat": "S AE1 T", "don't": "D OW1 N T"}


def call(name: str, inputs: Mapping[str, Any], **params: Any) -> Mapping[str, Any]:
    """What an operation gives, its defaults filled in."""
    values = call_values(params, OPERATIONS[name].parameters, lambda read: pytest.fail(read))
    return operation(name).run(inputs, values, OpContext(stage="here"))


@pytest.mark.parametrize(
    ("text", "words", "marks"),
    [
        ("The cat sat.", ["the", "cat", "sat"], ["", "", "."]),
        ("  (The cat), sat?!  ", ["the", "cat", "sat"], ["", ",", "?!"]),
        ("Don\u2019t 'quote' the cats' o'clock", ["don't", "quote", "the", "cats", "o'clock"], [""] * 5),
        ("Café déjà vu", ["cafe", "deja", "vu"], ["", "", ""]),
        ("well-known; so: there", ["well", "known", "so", "there"], ["", ";", ":", ""]),
    ],
)
def test_words_and_the_marks_behind_them(text: str, words: list[str], marks: list[str]) -> None:
    found = call("words", {"text": text})
    assert found["words"] == words
    assert found["marks"] == marks
    assert found["unknown"] == list(dict.fromkeys(words))


def test_unknown_words_are_named_once() -> None:
    found = call("words", {"text": "The blorp sat, the blorp zot", "known": KNOWN})
    assert found["unknown"] == ["blorp", "zot"]


@pytest.mark.parametrize("text", ["", "  ", "12 34", "...", "Привет"])
def test_a_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="no word that can be spoken"):
        call("words", {"text": text})


def test_letters_of_another_alphabet_are_words_where_they_are_declared() -> None:
    found = call("words", {"text": "Größe, Öl"}, letters="abcdefghijklmnopqrstuvwxyzäöüß")
    assert found["words"] == ["größe", "öl"]


def test_phonemes_of_sentences_with_spaces_and_marks() -> None:
    given = {"words": ["the", "blorp", "sat", "cat"], "marks": ["", ",", ".", ""], "known": KNOWN}
    found = call("phonemes", {**given, "unknown": ["blorp"], "spoken": ["B L AO1 R P"]})
    assert found["sentences"] == [
        ["DH", "AH0", " ", "B", "L", "AO1", "R", "P", ",", " ", "S", "AE1", "T", "."],
        ["K", "AE1", "T"],
    ]
    assert found["last"].tolist() == [False, True]


def test_long_sentences_are_cut_at_a_mark_else_at_a_word() -> None:
    given = {"words": ["cat"] * 6, "marks": ["", ",", "", "", "", "."], "known": KNOWN}
    found = call("phonemes", given, longest=12)
    text = ["".join(sentence) for sentence in found["sentences"]]
    assert text == ["KAE1T KAE1T,", "KAE1T KAE1T KAE1T", "KAE1T."]
    assert all(len(sentence) <= 12 for sentence in found["sentences"])


def test_a_word_nobody_has_spoken_is_named() -> None:
    with pytest.raises(RequestError, match="no phonemes of the word 'zot'"):
        call("phonemes", {"words": ["the", "zot"], "marks": ["", ""], "known": KNOWN})
    with pytest.raises(RequestError, match="0 pronunciations for 1 words"):
        call("phonemes", {"words": ["zot"], "marks": [""], "unknown": ["zot"], "spoken": []})


def test_ids_of_symbols_with_frame_and_padding() -> None:
    table = {"^": [1], "$": [2], "_": [0], "a": [7], "b": [8, 9]}
    plain = call("map_ids", {"symbols": ["a", "b"], "map": table})["result"]
    np.testing.assert_array_equal(plain, [[7, 8, 9]])
    assert plain.dtype == np.int64
    framed = call("map_ids", {"symbols": ["a", "b"], "map": table}, begin=["^"], end=["$"], between="_")["result"]
    np.testing.assert_array_equal(framed, [[1, 0, 7, 0, 8, 0, 9, 0, 2]])


def test_maps_may_have_one_id_a_symbol_and_name_what_they_lack() -> None:
    np.testing.assert_array_equal(call("map_ids", {"symbols": ["x"], "map": {"x": 3}})["result"], [[3]])
    with pytest.raises(PackageError, match="no ids for the symbol 'yy'"):
        call("map_ids", {"symbols": ["yy"], "map": {"x": 3}})
    with pytest.raises(PackageError, match="'map' of stage 'here' takes a map, not list"):
        call("map_ids", {"symbols": ["x"], "map": [1]})


def test_numbers_are_spelled_out() -> None:
    assert call("spell_out", {"text": "5 cats"}, language="en")["result"].split() == ["five", "cats"]

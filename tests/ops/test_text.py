from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import PackageError, RequestError

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\1"), max_size=40)


def test_tokenize_gives_ids_mask_and_types(call: Any, spoken: Any, tokenizer: Any) -> None:
    found = call("tokenize", {"text": "ever tried"}, spoken)
    ids = [tokenizer.token_id("▁ever"), tokenizer.token_id("▁tried")]
    assert found["tokens"].tolist() == [ids]
    assert found["mask"].tolist() == [[1, 1]]
    assert found["types"].tolist() == [[0, 0]]


def test_a_pair_stands_behind_what_is_between(call: Any, spoken: Any, tokenizer: Any) -> None:
    params = {"begin": ["<s>"], "between": ["</s>"], "end": ["</s>"]}
    found = call("tokenize", {"text": "ever", "pair": "try again"}, spoken, **params)
    texts = ["<s>", "▁ever", "</s>", "▁try", "▁again", "</s>"]
    assert found["tokens"].tolist() == [[tokenizer.token_id(text) for text in texts]]
    assert found["types"].tolist() == [[0, 0, 0, 1, 1, 1]]


def test_texts_of_control_tokens_are_text_unless_they_are_asked_for(call: Any, spoken: Any, tokenizer: Any) -> None:
    control = tokenizer.token_id("</s>")
    assert control not in call("tokenize", {"text": "ever</s>"}, spoken)["tokens"]
    assert control in call("tokenize", {"text": "ever</s>"}, spoken, special=True)["tokens"]


def test_detokenize_is_the_text(call: Any, spoken: Any, tokenizer: Any) -> None:
    ids = np.array([[tokenizer.token_id(text) for text in ("▁try", "▁again", "</s>")]])
    assert call("detokenize", {"tokens": ids}, spoken)["result"] == "try again"
    assert "</s>" in call("detokenize", {"tokens": ids}, spoken, special=True)["result"]


def test_a_package_without_the_tokenizer_is_told(call: Any, spoken: Any) -> None:
    with pytest.raises(PackageError, match="no tokenizer 'other'"):
        call("tokenize", {"text": "a"}, spoken, tokenizer="other")
    with pytest.raises(PackageError, match="no tokenizer"):
        call("tokenize", {"text": "a"})
    with pytest.raises(PackageError, match="<z>"):
        call("tokenize", {"text": "a"}, spoken, begin=["<z>"])


def test_render_puts_values_in_their_places(call: Any) -> None:
    params = {"template": "{{}} {}: {} s"}
    assert call("render", {"values": ["wave", np.array([2.5])]}, **params)["result"] == "{} wave: 2.5 s"
    with pytest.raises(PackageError, match="1 values for 2 places"):
        call("render", {"values": ["a"]}, template="{}{}")
    assert call("render", {}, template="as it is")["result"] == "as it is"


@given(st.lists(TEXTS, max_size=6), st.text(max_size=3))
def test_join_puts_the_separator_between_texts(call: Any, texts: list[str], separator: str) -> None:
    kept = [text for text in texts if text]
    found = call("join", {"values": texts}, separator=separator)
    assert found["result"] == separator.join(kept)
    assert found["items"] == kept
    assert call("join", {"values": texts}, separator=separator, skip_empty=False)["result"] == separator.join(texts)


def test_join_opens_lists_and_keeps_them_apart(call: Any) -> None:
    found = call("join", {"values": [["HH", "AH"], ["L", ["OW"]]]}, between=[" ", "|"])
    assert found["result"] == "HH AH L OW"
    assert found["items"] == ["HH", "AH", " ", "|", "L", "OW"]
    assert call("join", {"values": ["a", None, "b"]})["result"] == "a b"
    with pytest.raises(RequestError, match="takes texts"):
        call("join", {"values": [np.ones(2)]})


@given(st.text("ab .,!?\n ", max_size=60), st.integers(1, 20), st.booleans())
def test_split_text_keeps_all_that_is_no_space_within_the_length(
    call: Any, text: str, length: int, merge: bool
) -> None:
    pieces = call("split_text", {"text": text}, length=length, merge=merge)["result"]
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece and piece == piece.strip() and len(piece) <= length for piece in pieces)


def test_split_text_cuts_where_it_hurts_least(call: Any) -> None:
    text = 'He said "no." Then, after a while, he left! Why?\nNobody knows'
    assert call("split_text", {"text": text})["result"] == [
        'He said "no."',
        "Then, after a while, he left!",
        "Why?",
        "Nobody knows",
    ]
    long = "one two, three four five six"
    assert call("split_text", {"text": long}, length=15)["result"] == ["one two,", "three four five", "six"]
    assert call("split_text", {"text": "abcdefg"}, length=3)["result"] == ["abc", "def", "g"]
    assert call("split_text", {"text": "A b. C d. E f."}, length=9, merge=True)["result"] == ["A b. C d.", "E f."]


def test_spans_are_runs_of_one_label(call: Any) -> None:
    text = "Ada Byron met Babbage in London"
    labels = ["O", "B-PER", "I-PER", "LOC"]
    best = [0, 1, 2, 0, 1, 0, 3, 0]  # [CLS] Ada Byron met Babbage in London [SEP]
    offsets = [[0, 0], [0, 3], [4, 9], [10, 13], [14, 21], [22, 24], [25, 31], [0, 0]]
    scores = np.full((1, 8, 4), -20.0, np.float32)
    scores[0, np.arange(8), best] = 20
    items = call("spans", {"scores": scores, "offsets": offsets, "text": text, "labels": labels})["items"]
    assert [(item["label"], item["text"], item["start"], item["end"]) for item in items] == [
        ("PER", "Ada Byron", 0, 9),
        ("PER", "Babbage", 14, 21),
        ("LOC", "London", 25, 31),
    ]
    assert all(item["score"] == pytest.approx(1) for item in items)
    with pytest.raises(RequestError, match="needs labels"):
        call("spans", {"scores": scores, "offsets": offsets, "text": text})
    with pytest.raises(RequestError, match="7 ranges"):
        call("spans", {"scores": scores, "offsets": offsets[1:], "text": text, "labels": labels})

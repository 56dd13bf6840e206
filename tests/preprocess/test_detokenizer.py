"""Joined deltas are exactly the decoded whole, for every kind of decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.preprocess.detokenizer import Detokenizer, make_detokenizer
from genai_pipeline.preprocess.tokenizer import Tokenizer

KINDS = ["byte_level", "sentencepiece_bpe", "unigram", "word_piece"]
TEXT = "The fox 👩‍👩‍👧 안녕하세요 Привет мир, naïve 😀😀 “q” the  end\n\n  x"


MAKERS = [Detokenizer, make_detokenizer]  # the general one, and the one chosen for the vocabulary
Maker = Callable[[Tokenizer], Any]


def deltas(tokenizer: Tokenizer, ids: Sequence[int], make: Maker = make_detokenizer) -> list[str]:
    """The text of every push, then of the flush."""
    detokenizer = make(tokenizer)
    return [*[detokenizer.push(token) for token in ids], detokenizer.flush()]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("repeat", [1, 30])
def test_deltas_join_to_the_decoded_text(make: Maker, kind: str, repeat: int, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]
    ids = tokenizer.encode_text(TEXT * repeat, allow_special=False)
    out = deltas(tokenizer, ids, make)
    assert "".join(out) == tokenizer.decode(ids)
    if "\ufffd" not in tokenizer.decode(ids):
        assert not any("\ufffd" in delta for delta in out)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_any_tokens_at_all(make: Maker, kind: str, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]

    # out of the vocabulary, control and added tokens too
    @settings(max_examples=200, deadline=None)
    @given(ids=st.lists(st.integers(0, tokenizer.highest_id + 3), max_size=60))
    def check(ids: list[int]) -> None:
        assert "".join(deltas(tokenizer, ids, make)) == tokenizer.decode(ids)

    check()


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece_bpe"])
def test_any_bytes_at_all(make: Maker, kind: str, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]
    texts = [f"<0x{byte:02X}>" for byte in range(256)] if kind == "sentencepiece_bpe" else _byte_characters()
    ids_of = [tokenizer.token_id(text) for text in texts]
    parts = st.sampled_from(
        [b"\xf0\x9f\x98\x80", b"\xf0\x9f", b"\xed\x95\x9c", b"\xe2\x82", b"\xff", b"\x80", b"a", b" "]
    )
    extra = tokenizer.encode_text(" the fox", allow_special=False)

    @settings(max_examples=200, deadline=None)
    @given(parts=st.lists(st.one_of(parts, st.just(None)), max_size=40))
    def check(parts: list[bytes | None]) -> None:
        ids = [token for part in parts for token in (extra if part is None else [ids_of[byte] for byte in part])]
        assert "".join(deltas(tokenizer, ids, make)) == tokenizer.decode(ids)

    check()


def test_an_emoji_of_four_tokens_comes_out_whole(byte_tokenizer: Tokenizer) -> None:
    characters = _byte_characters()
    ids = [byte_tokenizer.token_id(characters[byte]) for byte in "😀!".encode()]
    assert deltas(byte_tokenizer, ids) == ["", "", "", "😀", "!", ""]


def test_a_cut_character_is_one_replacement_character_at_the_end(byte_tokenizer: Tokenizer) -> None:
    characters = _byte_characters()
    ids = [byte_tokenizer.token_id(characters[byte]) for byte in "a😀".encode()[:3]]
    assert deltas(byte_tokenizer, ids) == ["a", "", "", "\ufffd"]


def test_bytes_that_are_no_text_do_not_pile_up(byte_tokenizer: Tokenizer) -> None:
    token = byte_tokenizer.token_id(_byte_characters()[0xFF])
    assert deltas(byte_tokenizer, [token] * 200, Detokenizer)[1:-1] == ["\ufffd"] * 199
    assert deltas(byte_tokenizer, [token] * 200) == [*["\ufffd"] * 200, ""]


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_do_not_show(kind: str, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]
    ids = tokenizer.encode_text("<s>The</s> fox<|im_end|> the", allow_special=True)
    assert "".join(deltas(tokenizer, ids)) == tokenizer.decode(ids)
    assert make_detokenizer(tokenizer).push(tokenizer.token_id("</s>")) == ""


@pytest.mark.parametrize("make", [make_detokenizer, Detokenizer])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("repeat", [1, 30])
def test_control_tokens_that_are_asked_for_show_where_they_stand(
    make: Callable[..., Any], kind: str, repeat: int, loaded: dict[str, Tokenizer]
) -> None:
    tokenizer = loaded[kind]
    words = [*tokenizer.encode_text("the lazy dog over the fox ", allow_special=False)] * repeat
    shown, hidden = tokenizer.token_id("[CALLS]"), tokenizer.token_id("[RESULTS]")
    ids = [*words, shown, *words, hidden, *words, shown]
    decoder = make(tokenizer, frozenset((shown,)))
    text = "".join([*(decoder.push(token) for token in ids), decoder.flush()])
    plain = tokenizer.decode(ids)
    assert text.replace("[CALLS]", "") == plain
    assert text.startswith(f"{tokenizer.decode(words)}[CALLS]")
    assert text.endswith("[CALLS]")


def test_an_unfinished_character_ends_before_a_control_token(byte_tokenizer: Tokenizer) -> None:
    shown = byte_tokenizer.token_id("[CALLS]")
    begun = byte_tokenizer.encode_text("😀", allow_special=False)[0]
    for make in (make_detokenizer, Detokenizer):
        decoder = make(byte_tokenizer, frozenset((shown,)))
        assert [decoder.push(begun), decoder.push(shown), decoder.flush()] == ["", "\ufffd[CALLS]", ""]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", KINDS)
def test_restore_takes_back_what_was_pushed(make: Maker, kind: str, loaded: dict[str, Tokenizer]) -> None:
    tokenizer = loaded[kind]
    ids = tokenizer.encode_text(TEXT * 2, allow_special=False)
    for cut in range(0, len(ids), 5):
        detokenizer = make(tokenizer)
        before = [detokenizer.push(token) for token in ids[:cut]]
        mark = detokenizer.snapshot()
        for token in reversed(ids):
            detokenizer.push(token)
        detokenizer.flush()
        detokenizer.restore(mark)
        after = [detokenizer.push(token) for token in ids[cut:]]
        assert "".join([*before, *after, detokenizer.flush()]) == tokenizer.decode(ids)


def _byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level vocabularies."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]

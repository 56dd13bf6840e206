"""Bodies with media in them are read as JSON says, whatever is in them, within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genai_pipeline.server import long_texts
from genai_pipeline.server.api_errors import ApiError
from genai_pipeline.server.long_texts import LongTexts

MOST = 1000

texts = st.text(alphabet=st.sampled_from('aZ9+/=\\"\n \x7fé😀{}[],:'), max_size=40)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), texts)
names = st.text(alphabet=st.sampled_from('a/é"\n'), max_size=1)
values = st.recursive(leaves, lambda inner: st.one_of(st.lists(inner), st.dictionaries(names, inner)), max_leaves=12)


def read(data: bytes, most: int = MOST) -> Any:
    long = LongTexts(most)
    return long.put_back(json.loads(long.cut(data)))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_texts, "LONG", 3)
    monkeypatch.setattr(long_texts, "STEP", 5)


@pytest.mark.usefixtures("short")
def test_the_value_is_that_of_the_whole_text() -> None:
    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(value=values, ascii=st.booleans(), slashes=st.booleans())
    def check(value: Any, ascii: bool, slashes: bool) -> None:
        text = json.dumps(value, ensure_ascii=ascii)
        data = (text.replace("/", "\\/") if slashes else text).encode()
        assert read(data, 10_000) == value

    check()


def test_media_may_be_longer_than_all_the_rest() -> None:
    media = "A" * 50_000
    body = {"messages": [{"content": [{"image_url": {"url": media}}, {"input_audio": {"data": media + "/"}}]}]}
    assert read(json.dumps(body).encode()) == body
    assert read(json.dumps(body).replace("/", "\\/").encode()) == body


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"text": "a" * 5000}).encode(),
        json.dumps({"url": "a" * 5000, "text": "b" * 5000}).encode(),
        json.dumps({"url": "é" * 5000}).encode(),
        json.dumps({"url": "a\n" * 5000}).encode(),
        json.dumps({"url": '"' * 5000}).encode(),
        b'{"url": "' + b"\\" * 5000,
        b'{"url": "' + b'\\"' * 5000,
        b"[" * 5000,
        b'"",' * 5000,
        b'"\\",' * 5000,
        json.dumps(["a" * 5000]).encode(),
    ],
)
def test_all_that_is_no_media_is_bounded(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read(data)
    assert caught.value.status == 413


def test_marks_cannot_be_forged_and_names_are_no_media() -> None:
    with pytest.raises(ApiError) as caught:
        read(json.dumps({"a" * 5000: 1}).encode())
    assert caught.value.code == "invalid_json"
    one, other = LongTexts(MOST), LongTexts(MOST)
    first, second = (long.cut(json.dumps({"url": "a" * 5000}).encode()) for long in (one, other))
    assert first != second

"""Images and sounds in the content parts of messages: their sources taken out, in order, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from genai_pipeline.errors import RequestError
from genai_pipeline.preprocess.media_parts import stub, take_media

URL = "data:image/png;base64,AAAA"
TEXT = {"type": "text", "text": "hi"}
BOTH = {"image": True, "audio": True}


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


@pytest.mark.parametrize(
    ("part", "modality", "source"),
    [
        ({"type": "image", "image": b"x"}, "image", b"x"),
        ({"type": "image"}, "image", None),
        ({"type": "image_url", "image_url": {"url": URL}}, "image", URL),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "auto"}}, "image", URL),
        ({"type": "image_url", "image_url": URL}, "image", URL),
        ({"type": "input_image", "image_url": URL}, "image", URL),
        ({"type": "audio", "audio": ("samples", 8000)}, "audio", ("samples", 8000)),
        (
            {"type": "audio_url", "audio_url": {"url": "DATA:audio/wav;base64,AAAA"}},
            "audio",
            "DATA:audio/wav;base64,AAAA",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": base64.b64encode(b"RIFF").decode(), "format": "wav"}},
            "audio",
            b"RIFF",
        ),
    ],
)
def test_every_kind_of_part_gives_its_source(part: Any, modality: str, source: Any) -> None:
    messages, found = take_media(user(TEXT, part), BOTH)
    assert [(one.modality, one.source, one.where) for one in found] == [(modality, source, "messages[0].content[1]")]
    assert messages == user(TEXT, stub(modality))


def test_parts_are_found_in_order_over_all_messages() -> None:
    parts = [{"type": "image", "image": number} for number in (1, 2, 3)]
    given = [*user(parts[0], TEXT, parts[1]), {"role": "assistant", "content": "so"}, *user(parts[2])]
    messages, found = take_media(given, BOTH)
    assert [part.source for part in found] == [1, 2, 3]
    assert messages[1] == given[1]
    assert given[0]["content"][0] is parts[0], "what the caller gave is left alone"


def test_parts_without_a_place_in_the_prompt_disappear_from_the_text() -> None:
    messages, found = take_media(user({"type": "audio", "audio": 1}, TEXT), {"audio": False})
    assert (messages, len(found)) == (user(TEXT), 1)
    messages, _ = take_media(user({"type": "audio", "audio": 1}), {"audio": False})
    assert messages == [{"role": "user", "content": ""}]


def test_parts_that_the_package_does_not_take_lose_their_source_and_are_refused_later() -> None:
    messages, found = take_media(user({"type": "image", "image": b"x" * 10}), {"audio": True})
    assert (messages, found) == (user(stub("image")), [])


@pytest.mark.parametrize("given", ["text", 5, None, [5], [{"role": "user"}], [{"role": "user", "content": 7}]])
def test_what_is_no_conversation_goes_on_to_where_it_is_refused(given: Any) -> None:
    assert take_media(given, BOTH) == (given, [])


@pytest.mark.parametrize(
    ("part", "param", "says"),
    [
        ({"type": "image_url"}, "image_url", "must be a data: URL"),
        ({"type": "image_url", "image_url": {"url": 5}}, "image_url.url", "must be a data: URL"),
        ({"type": "image_url", "image_url": {"url": "http://secret.example/x"}}, "image_url.url", "is not opened"),
        ({"type": "image_url", "image_url": {"url": "/etc/passwd"}}, "image_url.url", "is not opened"),
        ({"type": "input_image", "image_url": "file:///etc/passwd"}, "image_url", "is not opened"),
        ({"type": "audio_url", "audio_url": "clip.wav"}, "audio_url", "is not opened"),
        ({"type": "image_url", "image_url": {"url": URL, "detail": "low"}}, "image_url.detail", "must be auto"),
        ({"type": "input_audio"}, "input_audio.data", "needs 'data'"),
        ({"type": "input_audio", "input_audio": {"data": "%%%"}}, "input_audio.data", "is not base64"),
        ({"type": "input_audio", "input_audio": {"data": "é"}}, "input_audio.data", "is not base64"),
    ],
)
def test_addresses_files_and_broken_data_are_refused_without_an_echo(part: Any, param: str, says: str) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        take_media(user(TEXT, part), BOTH)
    assert caught.value.param == f"messages[0].content[1].{param}"
    assert not any(word in str(caught.value) for word in ("secret", "passwd", "clip.wav"))

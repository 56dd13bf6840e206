from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import RequestError

WINDOWS = [{"start": 0.0, "end": 30.0}, {"start": 28.5, "end": 40.0}]


def ids(tokenizer: Any, *texts: str) -> Any:
    return np.array([tokenizer.token_id(text) for text in texts], np.int64)


def test_timestamps_count_from_the_beginning_of_their_window(call: Any, spoken: Any, tokenizer: Any) -> None:
    tokens = [
        ids(tokenizer, "<|1.00|>", "▁ever", "▁tried", "<|2.50|>", "<|2.50|>", "▁ever", "▁failed", "<|4.00|>"),
        ids(tokenizer, "<|0.50|>", "▁no", "▁matter", "<|3.00|>"),
    ]
    found = call("transcript_times", {"tokens": tokens, "windows": WINDOWS}, spoken)
    assert found["segments"] == [
        {"start": 1.0, "end": 2.5, "text": "ever tried"},
        {"start": 2.5, "end": 4.0, "text": "ever failed"},
        {"start": 29.0, "end": 31.5, "text": "no matter"},
    ]
    assert found["text"] == "ever tried ever failed no matter"


def test_without_timestamps_a_window_is_a_segment(call: Any, spoken: Any, tokenizer: Any) -> None:
    tokens = [ids(tokenizer, "▁try", "▁again"), ids(tokenizer)]
    found = call("transcript_times", {"tokens": tokens, "windows": WINDOWS}, spoken)
    assert found["segments"] == [{"start": 0.0, "end": 30.0, "text": "try again"}]


def test_times_never_leave_the_window_or_go_back(call: Any, spoken: Any, tokenizer: Any) -> None:
    tokens = [ids(tokenizer, "<|3.00|>", "▁ever", "<|2.00|>", "▁no", "<|30.00|>", "▁try")]
    found = call("transcript_times", {"tokens": tokens, "windows": [{"start": 1.0, "end": 5.0}]}, spoken)
    times = [(segment["start"], segment["end"]) for segment in found["segments"]]
    assert times == [(4.0, 4.0), (4.0, 5.0), (5.0, 5.0)]


def test_one_window_may_stand_alone(call: Any, spoken: Any, tokenizer: Any) -> None:
    inputs = {"tokens": ids(tokenizer, "▁no"), "windows": {"start": 0, "end": 2}}
    assert call("transcript_times", inputs, spoken)["segments"] == [{"start": 0.0, "end": 2.0, "text": "no"}]


def test_windows_and_tokens_belong_together(call: Any, spoken: Any, tokenizer: Any) -> None:
    with pytest.raises(RequestError, match="tokens of 1 windows for 2"):
        call("transcript_times", {"tokens": [ids(tokenizer, "▁no")], "windows": WINDOWS}, spoken)
    with pytest.raises(RequestError, match="start and end"):
        call("transcript_times", {"tokens": [ids(tokenizer, "▁no")], "windows": [3]}, spoken)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=4, max_size=12, unique=True), st.data())
def test_stitch_has_what_texts_share_once(call: Any, words: list[str], data: Any) -> None:
    cut = data.draw(st.integers(1, len(words) - 1))
    shared = data.draw(st.integers(1, cut))
    first, second = words[:cut], words[cut - shared :]
    found = call("stitch", {"values": [" ".join(first), " ".join(second)]})
    assert found["text"] == " ".join(words)
    assert found["segments"] is None


def test_stitch_hears_through_case_and_punctuation(call: Any) -> None:
    found = call("stitch", {"values": ["It was, no matter.", "No matter! Try again."]})
    assert found["text"] == "It was, no matter. Try again."
    assert call("stitch", {"values": ["a b", "c d"]})["text"] == "a b c d"


def test_stitch_gives_each_window_its_half_of_the_overlap(call: Any) -> None:
    def segment(start: float, end: float, text: str) -> dict[str, Any]:
        return {"start": start, "end": end, "text": text}

    first = [segment(0, 4, "one"), segment(4, 8, "two"), segment(8, 10, "thr")]
    second = [segment(6, 8, "wo"), segment(8, 11, "three"), segment(11, 12, "four")]
    found = call("stitch", {"values": [first, second]})
    assert [item["text"] for item in found["segments"]] == ["one", "two", "three", "four"]
    assert found["text"] == "one two three four"
    apart = call("stitch", {"values": [first, [segment(10, 12, "next")]]})
    assert [item["text"] for item in apart["segments"]] == ["one", "two", "thr", "next"]
    with pytest.raises(RequestError, match="at once"):
        call("stitch", {"values": [first, "text"]})

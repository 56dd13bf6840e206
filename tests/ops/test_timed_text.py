"""Timed texts in their formats, against what was written by hand."""

from __future__ import annotations

import json

import pytest

from genai_pipeline.errors import OperationFailedError
from genai_pipeline.ops.timed_text import Segment, to_json, to_srt, to_text, to_vtt

SPOKEN = [
    Segment(0, 1.5, " Ever tried, ever failed."),
    Segment(1.5, 3661.0426, "No matter.\nTry again."),
    Segment(3661.9996, 362439.9999, "Fail <again> & fail --> better"),
]


def test_srt() -> None:
    assert to_srt(SPOKEN) == (
        "1\n00:00:00,000 --> 00:00:01,500\nEver tried, ever failed.\n\n"
        "2\n00:00:01,500 --> 01:01:01,043\nNo matter.\nTry again.\n\n"
        "3\n01:01:02,000 --> 100:40:40,000\nFail <again> & fail \N{RIGHTWARDS ARROW} better\n"
    )


def test_vtt() -> None:
    assert to_vtt(SPOKEN) == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:01.500\nEver tried, ever failed.\n\n"
        "00:00:01.500 --> 01:01:01.043\nNo matter.\nTry again.\n\n"
        "01:01:02.000 --> 100:40:40.000\nFail &lt;again&gt; &amp; fail --&gt; better\n"
    )


def test_json() -> None:
    made = to_json(SPOKEN[:2], language="en", duration=3661.05)
    assert made == (
        '{"text": "Ever tried, ever failed. No matter. Try again.", "language": "en", "duration": 3661.05, '
        '"segments": [{"start": 0, "end": 1.5, "text": " Ever tried, ever failed."}, '
        '{"start": 1.5, "end": 3661.043, "text": "No matter.\\nTry again."}]}\n'
    )
    assert json.loads(to_json([Segment(0, 1, 'h\u00e9 \u65e5\u672c "q"')]))["text"] == 'h\u00e9 \u65e5\u672c "q"'


def test_text() -> None:
    assert to_text(SPOKEN) == "Ever tried, ever failed. No matter. Try again. Fail <again> & fail --> better"


def test_nothing_said() -> None:
    assert to_srt([]) == ""
    assert to_vtt([]) == "WEBVTT\n"
    assert to_text([]) == ""
    assert json.loads(to_json([])) == {"text": "", "segments": []}


def test_a_cue_has_no_empty_line_and_is_never_empty() -> None:
    segments = [Segment(0, 1, " \n "), Segment(1, 2, "one\r\n\r\n\u2028 two \n\n")]
    assert to_srt(segments) == "1\n00:00:01,000 --> 00:00:02,000\none\ntwo\n"
    assert to_vtt(segments) == "WEBVTT\n\n00:00:01.000 --> 00:00:02.000\none\ntwo\n"


def test_times_that_cannot_be() -> None:
    for start, end in ((-0.1, 1), (2, 1), (0, float("nan")), (0, float("inf")), (float("nan"), 1)):
        with pytest.raises(OperationFailedError, match="a segment cannot go from"):
            Segment(start, end, "text")


def test_segments_of_mappings() -> None:
    made = Segment.of({"start": 1, "end": 2.5, "text": "said", "tokens": [1, 2]})
    assert made == Segment(1.0, 2.5, "said")
    assert made.to_dict() == {"start": 1.0, "end": 2.5, "text": "said"}

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import PackageError

CHUNK = 0.032


def frames(path: list[int], count: int = 4, sure: float = 0.7) -> Any:
    """Probabilities of frames whose likeliest symbols are the path."""
    scores = np.full((1, len(path), count), (1 - sure) / (count - 1), np.float32)
    scores[0, np.arange(len(path)), path] = sure
    return scores


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_ctc_decode_merges_equal_neighbours_and_drops_blanks(call: Any, path: list[int]) -> None:
    found = call("ctc_decode", {"scores": frames(path), "labels": ["a", "b", "c"]}, seconds=0.5)
    wanted, at = [], 0
    for symbol, run in groupby(path):
        length = len(list(run))
        if symbol:
            wanted.append(("abc"[symbol - 1], at * 0.5, (at + length) * 0.5))
        at += length
    assert [(s["text"], s["start"], s["end"]) for s in found["symbols"]] == wanted
    assert found["text"] == "".join(text for text, _, _ in wanted)
    assert found["tokens"].tolist() == [["abc".index(text) + 1 for text, _, _ in wanted]]
    assert found["confidence"] == pytest.approx(0.7 if wanted else 0)


def test_confidence_is_the_mean_over_frames_and_then_over_symbols(call: Any) -> None:
    scores = np.array([[[0.1, 0.9, 0.0], [0.3, 0.7, 0.0], [1.0, 0.0, 0.0], [0.4, 0.0, 0.6]]], np.float32)
    found = call("ctc_decode", {"scores": scores})
    assert [symbol["confidence"] for symbol in found["symbols"]] == pytest.approx([0.8, 0.6])
    assert found["confidence"] == pytest.approx(0.7)
    assert found["text"] is None


def test_labels_may_have_the_blank_or_leave_it_out(call: Any) -> None:
    scores = frames([0, 1, 2], 3)
    assert call("ctc_decode", {"scores": scores, "labels": ["x", "y", "z"]}, blank=2)["text"] == "xy"
    assert call("ctc_decode", {"scores": scores, "labels": "x\ny"}, blank=1)["text"] == "xy"
    with pytest.raises(PackageError, match="4 labels for 3 symbols"):
        call("ctc_decode", {"scores": scores, "labels": ["a", "b", "c", "d"]})
    with pytest.raises(PackageError, match="blank 3"):
        call("ctc_decode", {"scores": scores}, blank=3)


def test_logits_have_to_be_declared(call: Any) -> None:
    logits = np.log(frames([1, 2])) + 5
    assert call("ctc_decode", {"scores": logits}, kind="logits")["confidence"] == pytest.approx(0.7)
    with pytest.raises(PackageError, match="no probabilities"):
        call("ctc_decode", {"scores": logits})


def test_padding_behind_the_length_is_not_read(call: Any) -> None:
    assert call("ctc_decode", {"scores": frames([1, 2, 3]), "length": np.array([2])})["tokens"].tolist() == [[1, 2]]


def chances(*runs: tuple[int, float]) -> Any:
    return np.array([[chance for count, chance in runs for _ in range(count)]], np.float32)


def spans(found: Any) -> list[tuple[float, float]]:
    return [(segment["start"], segment["end"]) for segment in found["segments"]]


def test_speech_begins_at_the_threshold_and_ends_in_silence(call: Any) -> None:
    found = call("speech_segments", {"probabilities": chances((10, 0.0), (20, 0.9), (10, 0.0))}, margin=0)
    assert spans(found) == [pytest.approx((10 * CHUNK, 30 * CHUNK))]


def test_between_low_and_threshold_nothing_changes(call: Any) -> None:
    wavering = chances((10, 0.4), (10, 0.6), (10, 0.4), (10, 0.1))
    assert spans(call("speech_segments", {"probabilities": wavering}, margin=0)) == [
        pytest.approx((10 * CHUNK, 30 * CHUNK))
    ]


@given(st.integers(1, 12))
def test_short_silences_are_part_of_speech(call: Any, gap: int) -> None:
    """A silence ends a segment once a chunk begins ``min_silence`` after its first one."""
    given = chances((5, 0.0), (12, 1.0), (gap, 0.0), (12, 1.0), (6, 0.0))
    found = spans(call("speech_segments", {"probabilities": given}, margin=0, min_silence=0.1))
    parted = any(nth * CHUNK >= 0.1 for nth in range(gap))
    first, last = 5 * CHUNK, (29 + gap) * CHUNK
    wanted = [(first, 17 * CHUNK), ((17 + gap) * CHUNK, last)] if parted else [(first, last)]
    assert found == [pytest.approx(span) for span in wanted]


@given(st.integers(1, 12))
def test_short_speech_is_dropped(call: Any, count: int) -> None:
    found = call("speech_segments", {"probabilities": chances((5, 0.0), (count, 1.0), (9, 0.0))}, min_speech=0.25)
    assert bool(found["segments"]) == (count * CHUNK > 0.25)


def test_margins_reach_into_silence_and_no_further(call: Any) -> None:
    given = chances((1, 0.0), (20, 1.0), (4, 0.0), (20, 1.0), (9, 0.0))
    found = spans(call("speech_segments", {"probabilities": given}, margin=0.1, min_silence=0.09))
    middle = 23 * CHUNK
    assert found == [pytest.approx((0, middle)), pytest.approx((middle, 45 * CHUNK + 0.1))]


def test_the_sound_may_end_within_the_last_chunk(call: Any) -> None:
    found = call("speech_segments", {"probabilities": chances((30, 1.0)), "seconds": np.array([0.95])})
    assert spans(found) == [pytest.approx((0, 0.95))]


def test_speech_that_is_too_long_is_cut_at_the_last_silence(call: Any) -> None:
    given = chances((20, 1.0), (5, 0.0), (20, 1.0))
    params = {"margin": 0, "min_silence": 1, "max_speech": 40 * CHUNK}
    found = spans(call("speech_segments", {"probabilities": given}, **params))
    assert found == [pytest.approx((0, 20 * CHUNK)), pytest.approx((25 * CHUNK, 45 * CHUNK))]
    whole = spans(call("speech_segments", {"probabilities": chances((90, 1.0))}, **params))
    assert whole[0] == pytest.approx((0, 41 * CHUNK))
    assert whole[-1][1] == pytest.approx(90 * CHUNK)


def test_neighbours_share_a_segment_up_to_a_length(call: Any) -> None:
    given = chances((20, 1.0), (10, 0.0), (20, 1.0), (10, 0.0), (20, 1.0))
    params = {"margin": 0, "pack": 51 * CHUNK}
    assert spans(call("speech_segments", {"probabilities": given}, **params)) == [
        pytest.approx((0, 50 * CHUNK)),
        pytest.approx((60 * CHUNK, 80 * CHUNK)),
    ]


def test_segments_have_their_samples(call: Any) -> None:
    samples = np.arange(30 * 512, dtype=np.float32)[np.newaxis]
    inputs = {"probabilities": chances((10, 0.0), (20, 1.0)), "samples": samples}
    (segment,) = call("speech_segments", inputs, margin=0)["segments"]
    assert segment["samples"][0, [0, -1]].tolist() == [10 * 512, 30 * 512 - 1]


def test_no_speech_no_segments(call: Any) -> None:
    assert call("speech_segments", {"probabilities": chances((50, 0.2))})["segments"] == []

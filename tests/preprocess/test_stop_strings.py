"""Stop strings are found wherever the text is cut, and no character of them is released."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genai_pipeline.errors import OptionError
from genai_pipeline.preprocess.stop_strings import StopMatcher


def naive(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Text before the stop string that ends first (the longest of those), by looking at every prefix."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    pieces=st.lists(st.text("abc", max_size=4), max_size=12),
    stops=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=4),
)
def test_any_cut_gives_what_the_joined_text_gives(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    expected, stop = naive("".join(pieces), stops)
    seen, released = "", ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        seen, released = seen + piece, released + text
        assert stopped == (naive(seen, stops)[1] is not None)
        # what is out can be no part of a stop string, and what is held back may be one
        assert expected.startswith(released)
        held = naive(seen, stops)[0][len(released) :] if not stopped else ""
        assert not held or any(other.startswith(held) for other in stops)
    assert released + matcher.flush() == expected
    assert matcher.matched == stop


def test_a_stop_string_over_several_tokens() -> None:
    matcher = StopMatcher(["O P Q"])
    assert [matcher.push(piece) for piece in ("O", " P", " Q", " R")] == [
        ("", False),
        ("", False),
        ("", True),
        ("", True),
    ]
    assert matcher.flush() == ""


def test_a_stop_string_that_begins_inside_a_token() -> None:
    matcher = StopMatcher(["\nObservation"])
    assert matcher.push("done.\nObs") == ("done.", False)
    assert matcher.push("ervation: 3") == ("", True)


def test_a_near_miss_is_released() -> None:
    matcher = StopMatcher(["</end>"])
    assert matcher.push("a</en") == ("a", False)
    assert matcher.push("o<") == ("</eno", False)
    assert matcher.flush() == "<"


def test_the_stop_that_is_complete_first_wins_then_the_longest() -> None:
    assert StopMatcher(["abcd", "bc"]).push("xabcd") == ("xa", True)
    assert StopMatcher(["c", "abc"]).push("xabcd") == ("x", True)


@pytest.mark.parametrize("stop", ["", None, 3])
def test_an_empty_stop_string_is_refused(stop: object) -> None:
    with pytest.raises(OptionError, match="stop string") as raised:
        StopMatcher(["a", stop])  # type: ignore[list-item]
    assert raised.value.param == "stop"


def test_long_stop_strings_cost_no_more_per_character() -> None:
    matcher = StopMatcher(["a" * 5000 + "b"])
    for _ in range(20_000):
        matcher.push("a")
    assert matcher.push("b") == ("", True)

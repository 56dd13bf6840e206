"""Where generation ends, and what is streamed, counted and returned when it does."""

from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError, PromptTooLongError, RequestError

GO = "<|go|>"


def go(pipe: Any, **options: Any) -> Any:
    return pipe.generate(GO, raw=True, temperature=0, **options)


@pytest.mark.parametrize("end", ["</s>", "<|im_end|>"])
def test_every_declared_end_token_ends(open_tiny: Any, end: str) -> None:
    pipe, _ = open_tiny("script", script=["O", " P"], end=end, eos=["<|im_end|>", "</s>"])
    result = go(pipe, stop=["never"])
    assert (result.text, result.finish_reason) == ("O P", "stop")
    assert result.usage.completion_tokens == 3  # the end token was sampled too
    assert len(result.tokens) == 2


def test_end_tokens_of_the_request_add_to_the_declared_ones(open_tiny: Any) -> None:
    pipe, package = open_tiny("script", script=["O", " P", " Q"])
    stop = package.vocabulary.id(" P")
    assert go(pipe, stop_token_ids=[stop]).text == "O"
    assert go(pipe, stop_token_ids=[package.vocabulary.id("a")]).text == "O P Q"


@pytest.mark.parametrize(
    ("stop", "text", "completion"),
    [
        (["O P Q"], "", 3),
        ([" P Q"], "O", 3),
        (["P Q"], "O ", 3),
        ([" R", "Q"], "O P ", 3),
        (["R"], "O P Q ", 4),
        (["X"], "O P Q R", 5),
    ],
)
def test_no_character_of_a_stop_string_is_sent(open_tiny: Any, stop: list[str], text: str, completion: int) -> None:
    pipe, _ = open_tiny("script", script=["O", " P", " Q", " R"])
    events = list(pipe.stream(GO, raw=True, temperature=0, stop=stop))
    assert "".join(event.text for event in events) == text
    assert [event.finish_reason for event in events if event.finish_reason] == ["stop"]
    assert events[-1].usage.completion_tokens == completion
    assert events[-1].stop_string == (None if stop == ["X"] else stop[-1])
    assert [event.stop_string for event in events[:-1]] == [None] * (len(events) - 1)
    assert go(pipe, stop=stop).text == text


def test_the_last_event_alone_has_a_finish_reason(open_tiny: Any) -> None:
    pipe, _ = open_tiny("script", script=["O", " P", " Q", " R"])
    for options, reason in (({}, "stop"), ({"max_new_tokens": 2}, "length")):
        events = list(pipe.stream(GO, raw=True, temperature=0, **options))
        assert [event.finish_reason for event in events] == [None] * (len(events) - 1) + [reason]
        assert events[-1].usage is not None


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_an_explicit_limit_is_exact(open_tiny: Any, limit: int) -> None:
    pipe, _ = open_tiny("script", script=["O", " P", " Q", " R"])
    result = go(pipe, max_new_tokens=limit)
    assert (len(result.tokens), result.usage.completion_tokens, result.finish_reason) == (limit, limit, "length")


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(open_tiny: Any, limit: int) -> None:
    pipe, _ = open_tiny("script")
    with pytest.raises(OptionError, match="max_new_tokens"):
        go(pipe, max_new_tokens=limit)


def test_prompts_around_the_context(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv", context_length=32)
    token = package.vocabulary.id("a")
    fits = pipe.generate(tokens=[token] * 31, temperature=0)
    assert (fits.usage.completion_tokens, fits.finish_reason) == (1, "length")
    for length in (32, 33, 320):
        with pytest.raises(PromptTooLongError, match=rf"{length} tokens.*32"):
            pipe.generate(tokens=[token] * length)
    with pytest.raises(PromptTooLongError, match=r"30.*3.*33.*32"):
        pipe.generate(tokens=[token] * 30, max_new_tokens=3)
    assert pipe.generate(tokens=[token] * 30, max_new_tokens=2, temperature=0).usage.completion_tokens == 2
    silent = pipe.generate(tokens=[token] * 20, temperature=0, ignore_eos=True)
    assert silent.usage.completion_tokens == 12


def test_minimum_length_bans_end_tokens(open_tiny: Any) -> None:
    pipe, _ = open_tiny("script", script=["O"], end="</s>")
    assert go(pipe).usage.completion_tokens == 2
    assert go(pipe, min_new_tokens=5, max_new_tokens=8).usage.completion_tokens >= 5


def test_an_empty_prompt_is_refused(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    for empty in ({"tokens": []}, {"prompt": "", "raw": True}):
        with pytest.raises(RequestError, match="prompt"):
            pipe.generate(**empty)


def test_tokens_outside_the_vocabulary_are_refused(open_tiny: Any) -> None:
    pipe, package = open_tiny("kv")
    for token in (-1, len(package.vocabulary)):
        with pytest.raises(RequestError, match=str(token)):
            pipe.generate(tokens=[token])


TEXT = "caf\u00e9 \U0001f389 \ud55c\uad6d \u043c\u0438\u0440!"


def test_streamed_text_is_the_whole_text(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text=TEXT)
    events = list(pipe.stream(GO, raw=True, temperature=0))
    assert "".join(event.text for event in events) == TEXT == go(pipe).text
    assert all("\ufffd" not in event.text for event in events)


def test_a_cut_inside_a_character_gives_the_same_text_streamed_and_not(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="\U0001f389")
    for limit in (1, 2, 3):
        events = list(pipe.stream(GO, raw=True, temperature=0, max_new_tokens=limit))
        result = go(pipe, max_new_tokens=limit)
        assert "".join(event.text for event in events) == result.text
        assert result.finish_reason == "length"
        result.text.encode()
    assert go(pipe).text == "\U0001f389"

"""What a caller is told: the name that was given, what is wrong with it, and a hint that can be followed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import genai_pipeline as gp
from genai_pipeline.errors import OptionError, PromptTooLongError, RequestError, TemplateError
from genai_pipeline.testing import write_package
from genai_pipeline.testing.voices import write_transcriber

HALF = "a\ud800"  # half of a surrogate pair


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gp.Pipeline]:
    with gp.load(write_package(tmp_path_factory.mktemp("faults") / "tiny", "script").path, memory=32 << 20) as loaded:
        yield loaded


@pytest.mark.parametrize("given", [5, 2.5, True, {"role": "user"}, {"a", "b"}])
def test_an_input_that_is_no_text_is_named(pipe: gp.Pipeline, given: Any) -> None:
    with pytest.raises(RequestError, match="prompt must be a text or a list of messages, not ") as caught:
        pipe.run({"prompt": given})
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", HALF),
        ("stop", ["a", HALF]),
        ("dry_sequence_breakers", [HALF]),
        ("choices", [HALF]),
        ("regex", HALF),
        ("system", HALF),
        ("grammar", f'start: "{HALF}"'),
    ],
)
def test_no_text_has_half_a_character(pipe: gp.Pipeline, name: str, value: Any) -> None:
    with pytest.raises(gp.GenaiError, match=r"not valid Unicode at character \d+: half of a surrogate pair") as caught:
        pipe.generate("a", **{name: value})
    assert getattr(caught.value, "param", None) == name


def test_where_there_is_nothing_to_list_the_hint_says_so(pipe: gp.Pipeline) -> None:
    with pytest.raises(OptionError) as caught:
        pipe.generate("a", chat_template_kwargs={"a": 1})
    assert caught.value.hint == "it has none of its own"
    with pytest.raises(OptionError) as caught:
        pipe.generate("a", tools=[], tool_choice={"type": "function", "function": {"name": "x"}})
    assert caught.value.hint == "there are none: give tools too"


def test_a_hint_for_too_many_tokens_can_be_followed_in_every_interface(pipe: gp.Pipeline) -> None:
    with pytest.raises(PromptTooLongError) as caught:
        pipe.generate("a", max_new_tokens=9000)
    assert "shorten the prompt" in caught.value.hint
    assert "leave" not in caught.value.hint


def test_hints_for_load_options_know_the_precision(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as caught:
        gp.load(tmp_path, precison="fast")  # type: ignore[call-arg]
    assert caught.value.hint == "did you mean 'precision'?"
    with pytest.raises(OptionError, match="unknown load option 'zork'") as caught:
        gp.load(tmp_path, zork=1)  # type: ignore[call-arg]
    assert "precision" in caught.value.hint


def test_a_conversation_without_a_template_gets_no_advice_for_single_prompts(tmp_path: Path) -> None:
    package = write_package(tmp_path / "tiny", "script", chat_template=None)
    with gp.load(package.path, memory=32 << 20) as pipe:
        asks: tuple[Callable[[], object], ...] = (
            lambda: pipe.generate(messages=[{"role": "user", "content": "a"}]),
            lambda: pipe.session().chat("a"),
        )
        for ask in asks:
            with pytest.raises(TemplateError, match="no chat template") as caught:
                ask()
            assert "--raw" not in caught.value.hint


@pytest.mark.parametrize("rate", ["x", None, True, 16000.5, b"16000"])
def test_samples_with_a_wrong_rate_are_one_sound(tmp_path: Path, rate: Any) -> None:
    with gp.load(write_transcriber(tmp_path / "transcriber").path, memory=32 << 20) as pipe:
        with pytest.raises(gp.GenaiError, match="audio has a rate of type "):
            pipe.transcribe((np.zeros(16000, np.float32), rate))
        with pytest.raises(RequestError, match="takes one item, not 2"):
            pipe.transcribe(("a.wav", "b.wav"))

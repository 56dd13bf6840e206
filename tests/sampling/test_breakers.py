from __future__ import annotations

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.sampling.breakers import BreakerTexts
from genai_pipeline.sampling.params import GenerationOptions, resolve_options

TEXTS = ("a", "\n", "b\n\n", "*", '":', "c")


def test_a_text_stands_for_every_token_that_contains_it() -> None:
    breakers = BreakerTexts(lambda: TEXTS)
    options = resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": ["\n", 5, "*", "b"]})
    assert breakers.resolve(options).dry_sequence_breakers == (1, 2, 5, 3)
    assert breakers.resolve(resolve_options({"dry_multiplier": 1})).dry_sequence_breakers == (1, 2, 4, 3)


def test_the_vocabulary_is_read_once_and_only_for_texts() -> None:
    calls: list[int] = []

    def read() -> tuple[str, ...]:
        calls.append(1)
        return TEXTS

    breakers = BreakerTexts(read)
    assert breakers.resolve(GenerationOptions()) == GenerationOptions()
    ids = resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": [4]})
    assert breakers.resolve(ids) is ids
    assert calls == []
    for _ in range(3):
        breakers.resolve(resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": "\n"}))
    assert calls == [1]


def test_more_texts_than_are_remembered_are_found_too() -> None:
    breakers = BreakerTexts(lambda: [chr(200 + i) for i in range(600)])
    for i in range(600):
        options = resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": [chr(200 + i)]})
        assert breakers.resolve(options).dry_sequence_breakers == (i,)


def test_texts_that_can_mean_nothing_are_refused() -> None:
    asked = resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": ["xyz"]})
    with pytest.raises(OptionError, match="'xyz', which no token contains") as caught:
        BreakerTexts(lambda: TEXTS).resolve(asked)
    assert caught.value.param == "dry_sequence_breakers"
    with pytest.raises(OptionError, match="no one tokenizer"):
        BreakerTexts(None).resolve(asked)
    without = resolve_options({"dry_multiplier": 1, "dry_sequence_breakers": []})
    assert BreakerTexts(None).resolve(without) is without

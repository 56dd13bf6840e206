"""What a request gives as its prompt: exactly one of text, messages and ids, or the declared default."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import OptionError, RequestError
from genai_pipeline.metadata.load import load_package
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.testing import write_package

Reader = Callable[..., PromptReader]
USER = [{"role": "user", "content": "hello"}]


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Makes the reader of a tiny package; ``inputs`` replace its own."""

    def make(**inputs: Any) -> PromptReader:
        edit = (lambda metadata: metadata.update(inputs=inputs)) if inputs else None
        spec, _ = load_package(write_package(tmp_path / "tiny", "script", edit=edit))
        assert spec is not None
        return PromptReader(spec, {"default": Tokenizer.load(spec.root, spec.tokenizers["default"])})

    return make


def test_without_a_prompt_the_declared_default_is_the_prompt(reader: Reader) -> None:
    prompts = reader(prompt={"modality": "text", "default": "hello"})
    assert prompts.prompt() == prompts.prompt("hello") == prompts.inputs({}) == prompts.inputs({"prompt": "hello"})
    assert prompts.prompt(raw=True) == prompts.prompt("hello", raw=True)
    assert prompts.prompt(system="be brief") == prompts.prompt("hello", system="be brief")
    assert prompts.prompt("O P") != prompts.prompt()
    assert prompts.prompt(messages=USER) == prompts.prompt()


def test_without_a_default_one_of_three_must_be_given(reader: Reader) -> None:
    prompts = reader()
    for given in ({}, {"messages": USER, "tokens": [1]}, {"prompt": "a", "tokens": [1]}):
        with pytest.raises(RequestError, match="exactly one of prompt, messages and tokens"):
            prompts.prompt(**given)


@pytest.mark.parametrize("given", [{"messages": USER}, {"tokens": [5]}])
def test_what_only_a_plain_prompt_takes_is_refused_elsewhere(reader: Reader, given: Any) -> None:
    prompts = reader()
    for name, value in (("raw", True), ("system", "be brief")):
        with pytest.raises(RequestError, match=f"{name} goes with a plain prompt") as caught:
            prompts.prompt(**given, **{name: value})
        assert caught.value.param == name
    assert prompts.prompt(**given, raw=False) == prompts.prompt(**given)


@pytest.mark.parametrize("given", [{"raw": 1}, {"system": 5}, {"raw": True, "system": "x"}])
def test_wrong_kinds_are_refused_by_name(reader: Reader, given: Any) -> None:
    with pytest.raises((OptionError, RequestError), match=f"^{next(iter(reversed(given)))} "):
        reader().prompt("hello", **given)


def test_ids_may_come_from_numpy(reader: Reader) -> None:
    prompts = reader()
    assert prompts.prompt(tokens=np.array([5, 6])) == prompts.prompt(tokens=[5, 6])
    assert all(type(token) is int for token in prompts.prompt(tokens=np.array([5, 6]))["prompt.tokens"])
    for wrong in ("56", 5, [True], [0.5], ["5"], [-1], [10**9]):
        with pytest.raises(RequestError, match="token") as caught:
            prompts.prompt(tokens=wrong)
        assert caught.value.param == "tokens"


def test_half_a_surrogate_pair_is_counted_in_the_text_that_was_given(reader: Reader) -> None:
    prompts = reader()
    with pytest.raises(RequestError, match="prompt is not valid Unicode at character 2") as caught:
        prompts.prompt("ab\ud800")
    assert caught.value.param == "prompt"
    with pytest.raises(RequestError, match="system is not valid Unicode at character 0"):
        prompts.prompt("ab", system="\ud800")
    with pytest.raises(RequestError, match=r"messages\[0\]\.content is not valid Unicode at character 1") as caught:
        prompts.prompt(messages=[{"role": "user", "content": "a\udfff"}])
    assert caught.value.param == "messages[0].content"

"""Prompts for filling in the middle: declared tokens in the declared order, refused everywhere else."""

from __future__ import annotations

import pytest

from genai_pipeline.errors import OptionError, RequestError
from genai_pipeline.metadata.load import load_package
from genai_pipeline.preprocess.prompts import PromptReader
from genai_pipeline.preprocess.text_checks import check_text
from genai_pipeline.preprocess.tokenizer import Tokenizer
from genai_pipeline.problems import Problems
from genai_pipeline.testing import write_package

TOKENS = {"prefix": "<|im_start|>", "suffix": "<|go|>", "middle": "<|im_end|>"}


@pytest.fixture
def package(tmp_path):
    """``package(infill)``: the checked metadata of a tiny package, its tokenizer, and the problems of its text."""

    def make(infill, kind="script", **options):
        edit = (lambda m: m["tokenizer"].update(infill=infill)) if infill is not None else None
        spec, problems = load_package(write_package(tmp_path, kind, edit=edit, **options))
        assert [problem for problem in problems if problem.severity == "error"] == []
        found = Problems()
        check_text(spec, {}, found)
        return spec, Tokenizer.load(spec.root, spec.tokenizers["default"]), found.sorted()

    return make


@pytest.mark.parametrize(
    ("order", "text"),
    [
        ({}, "<|im_start|>def f(<|go|>return x<|im_end|>"),
        ({"order": "psm"}, "<|im_start|>def f(<|go|>return x<|im_end|>"),
        ({"order": "spm"}, "<|go|>return x<|im_start|>def f(<|im_end|>"),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_prompt_and_suffix_stand_around_the_gap(package, order, text, raw):
    spec, tokenizer, problems = package({**TOKENS, **order})
    assert problems == ()
    values = PromptReader(spec, {"default": tokenizer}).prompt("def f(", suffix="return x", raw=raw)
    assert values["prompt.text"] == text
    assert values["prompt.tokens"] == tokenizer.encode_text(text, allow_special=True)


def test_tokens_may_be_given_by_id_and_texts_be_empty(package):
    spec, tokenizer, problems = package({"prefix": 2, "suffix": 4, "middle": 3}, add_bos=True)
    assert problems == ()
    values = PromptReader(spec, {"default": tokenizer}).prompt("", suffix="")
    assert values["prompt.text"] == "<|im_start|><|go|><|im_end|>"


def test_a_package_that_declares_none_refuses_a_suffix(package):
    spec, tokenizer, _ = package(None)
    with pytest.raises(OptionError, match="does not fill in the middle") as caught:
        PromptReader(spec, {"default": tokenizer}).prompt("a", suffix="b")
    assert caught.value.param == "suffix"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"messages": [{"role": "user", "content": "a"}], "suffix": "b"}, "suffix"),
        ({"tokens": [5], "suffix": "b"}, "suffix"),
        ({"prompt": "a", "suffix": 5}, "suffix"),
        ({"prompt": "a", "suffix": "\ud800"}, "suffix"),
        ({"prompt": 5, "suffix": "b"}, "prompt"),
        ({"prompt": "a", "suffix": "b", "system": "c"}, "system"),
    ],
)
def test_a_suffix_goes_with_a_plain_prompt_only(package, given, param):
    spec, tokenizer, _ = package(TOKENS)
    with pytest.raises(RequestError) as caught:
        PromptReader(spec, {"default": tokenizer}).prompt(**given)
    assert caught.value.param == param


def test_a_token_that_its_text_does_not_become_is_a_problem(package):
    _, _, problems = package({**TOKENS, "middle": 100_000})
    assert [(problem.code, problem.at.path) for problem in problems] == [
        ("tokenizer.token_range", "tokenizer.infill.middle")
    ]
    _, tokenizer, problems = package({**TOKENS, "middle": "\u0120"}, kind="bytes")
    assert tokenizer.token_to_id("\u0120") is not None
    assert [(problem.code, problem.at.path) for problem in problems] == [
        ("tokenizer.infill", "tokenizer.infill.middle")
    ]

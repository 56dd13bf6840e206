"""Numbers that no float and no message can hold: refused by name wherever a caller may give one, and never repeated."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.config import LoadArguments
from genai_pipeline.errors import ConstraintError, OptionError
from genai_pipeline.option_values import LARGEST, as_number, integer, number
from genai_pipeline.problems import SHOWN, shown
from genai_pipeline.testing import write_package
from genai_pipeline.types import RequestOptions

HUGE = 10**400  # too large for a float
UNWRITTEN = 10**5000  # Python writes no whole number of so many digits
NUMBERS = (HUGE, -HUGE, UNWRITTEN, -UNWRITTEN, Fraction(HUGE))
FORMS: Any = (lambda given: given, lambda given: [given], lambda given: {"5": given}, lambda given: {given: 1})


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[gp.Pipeline]:
    package = write_package(tmp_path_factory.mktemp("large") / "tiny", "script")
    with gp.load(package.path, memory=32 << 20) as loaded:
        yield loaded


def options(name: str, given: Any) -> Any:
    return {name: given}


def test_what_is_too_large_for_a_float_is_infinite() -> None:
    assert [as_number(given) for given in NUMBERS] == [*[float("inf"), float("-inf")] * 2, float("inf")]
    assert as_number(2**1000) == 2**1000
    with pytest.raises(OptionError, match="timeout must be finite and above 0, not a number of about 401 digits"):
        number("timeout", HUGE, 0, above=True)
    with pytest.raises(OptionError, match=f"top_k must be between 0 and {LARGEST}, not a number of about 5001 digits"):
        integer("top_k", UNWRITTEN, 0)


def test_messages_show_values_in_short() -> None:
    assert [shown(given) for given in (5, "a", None, [1])] == ["5", "'a'", "None", "[1]"]
    assert shown(-HUGE) == "a number of about 401 digits"
    assert shown([UNWRITTEN]) == "a list with a number of thousands of digits"
    assert len(shown("x" * 1000)) == len(shown([HUGE])) == SHOWN


@pytest.mark.parametrize("name", RequestOptions.__annotations__)
@pytest.mark.parametrize("form", FORMS)
def test_no_option_takes_one(pipe: gp.Pipeline, name: str, form: Any) -> None:
    prompt = () if name in ("messages", "tokens") else ("hi",)
    for given in NUMBERS:
        with pytest.raises(gp.GenaiError) as caught:
            pipe.generate(*prompt, **{"max_new_tokens": 2, **options(name, form(given))})
        assert len(f"{caught.value}") < 2 * SHOWN + 200


@pytest.mark.parametrize("name", sorted(LoadArguments.__annotations__))
def test_no_load_option_takes_one(tmp_path: Path, name: str) -> None:
    package = write_package(tmp_path / "tiny", "script")
    for given in NUMBERS:
        with pytest.raises(OptionError) as caught:
            gp.load(package.path, **options(name, given))
        assert caught.value.param == name


@pytest.mark.parametrize("name", ["memory", "cache_disk", "encoder_cache"])
def test_no_size_is_written_with_so_many_digits(tmp_path: Path, name: str) -> None:
    package = write_package(tmp_path / "tiny", "script")
    for given in ("9" * 400, "9" * 5000, f"{'9' * 400}GiB", f"{'9' * 400}.5 GiB", float("nan"), float("inf")):
        with pytest.raises(OptionError, match="cannot be") as caught:
            gp.load(package.path, **options(name, given))
        assert (caught.value.param, len(caught.value.message) < 2 * SHOWN) == (name, True)


@pytest.mark.parametrize("keyword", ["minimum", "exclusiveMaximum", "multipleOf", "maxLength", "minItems", "const"])
def test_no_schema_takes_one(pipe: gp.Pipeline, keyword: str) -> None:
    for given in (HUGE, UNWRITTEN):
        format = {"type": "json_schema", "json_schema": {"name": "a", "schema": {keyword: given}}}
        with pytest.raises(ConstraintError) as caught:
            pipe.generate("hi", response_format=format)
        assert len(caught.value.message) < 2 * SHOWN


@pytest.mark.parametrize("count", ["{%s}", "{0,%s}", "{%s,}"])
def test_no_pattern_counts_so_far(pipe: gp.Pipeline, count: str) -> None:
    with pytest.raises(ConstraintError, match="repetitions are counted up to"):
        pipe.generate("hi", regex=f"a{count % ('9' * 5000)}")
    assert pipe.generate("hi", regex=f"O{count % ('0' * 5000 + '1')}").text.startswith("O") or count == "{0,%s}"


@pytest.mark.parametrize("arguments", [f'{{"a": {"9" * 5000}}}', f'{{"a": -{"9" * 5000}}}', "[" * 100_000])
def test_no_call_that_comes_back_has_one(pipe: gp.Pipeline, arguments: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "tool_calls": [call]},
    ]
    with pytest.raises(gp.GenaiError, match="has a number of too many digits, or is nested too deeply") as caught:
        pipe.generate(messages=messages)
    assert caught.value.param == "messages[1].tool_calls[0].function.arguments"  # type: ignore[attr-defined]


@pytest.mark.parametrize("written", ["a / 2", "a | float", "'x' * a", "'%d' % a", "range(a)", "'x'.center(a)", "a * a"])
def test_no_template_fails_without_a_name(tmp_path: Path, written: str) -> None:
    template = "{% for message in messages %}{{ message.content }}{% endfor %}{{ " + written + " }}"
    with gp.load(write_package(tmp_path / "tiny", "script", chat_template=template).path, memory=32 << 20) as pipe:
        for given in (HUGE, 10**4000, UNWRITTEN):
            with pytest.raises(gp.GenaiError) as caught:
                pipe.generate("a", chat_template_kwargs={"a": given})
            assert len(caught.value.message) < 2 * SHOWN

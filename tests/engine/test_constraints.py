"""Constrained answers through the engine: in batches, with forced tokens, cut, preempted, failing; never unbound."""

from __future__ import annotations

import json
import re
import threading
from functools import partial
from typing import Any

import jsonschema
import pytest

from genai_pipeline.engine.collect import collect_result
from genai_pipeline.errors import ConstraintError, GenaiError, OptionError
from genai_pipeline.types import Choice

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "certain": {"type": "boolean"}},
    "required": ["name", "certain"],
    "additionalProperties": False,
}


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


FORMS: dict[str, dict[str, Any]] = {
    "free": {},
    "date": {"regex": r"\d{4}-\d{2}-\d{2}"},
    "forced": {"regex": r"The answer is \d\d, no more than that\."},
    "choice": {"choices": ["yes, certainly", "no, never", "yes"]},
    "schema": schema(PERSON),
    "grammar": {"grammar": 'start: "sum: " NUMBER ("+" NUMBER)~1..3\nNUMBER: /[0-9]{1,3}/'},
    "ends": {"regex": "[a-z]{2,}"},
}


def fits(form: str, text: str) -> bool:
    if form == "schema":
        return jsonschema.Draft202012Validator(PERSON).is_valid(json.loads(text))
    if form == "grammar":
        return re.fullmatch(r"sum: [0-9]{1,3}(\+[0-9]{1,3}){1,3}", text) is not None
    if form == "choice":
        return text in FORMS[form]["choices"]
    return form == "free" or re.fullmatch(FORMS[form]["regex"], text) is not None


def asked(seeded: bool, **more: Any) -> dict[str, dict[str, Any]]:
    """A request for each form; white space in JSON makes it long."""
    return {
        form: {
            "max_new_tokens": 450 if form == "schema" else 60,
            **({"temperature": 1.0, "seed": seed} if seeded else {"temperature": 0}),
            **options,
            **more,
        }
        for seed, (form, options) in enumerate(FORMS.items())
    }


def plain(choice: Choice) -> tuple[Any, ...]:
    return choice.text, choice.tokens, choice.finish_reason


def together(pipe: Any, requests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    streams = {form: pipe.stream("q" + form, **options) for form, options in requests.items()}
    return {form: collect_result(stream) for form, stream in streams.items()}


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
def test_each_row_keeps_to_its_own_form_in_any_company(open_tiny: Any, seeded: bool) -> None:
    pipe, _ = open_tiny("bytes", text="xyz", peak=2.0, context_length=512, load={"max_batch": 4})
    alone = {form: pipe.generate("q" + form, **options) for form, options in asked(seeded).items()}
    results = together(pipe, asked(seeded))
    for form, result in results.items():
        assert result.choices == alone[form].choices
        if result.finish_reason == "stop":
            assert fits(form, result.text), (form, result.text)
    assert {form for form, result in results.items() if result.finish_reason == "stop"} >= {
        "date",
        "forced",
        "choice",
        "schema",
    }


@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
def test_forced_tokens_are_those_that_would_be_chosen(open_tiny: Any, seeded: bool) -> None:
    """Where log probabilities are wanted, every token is chosen; the answers are the same."""
    pipe, _ = open_tiny("bytes", text="xyz", peak=2.0, context_length=512)
    for form, options in asked(seeded).items():
        before = pipe.stats()["runs"]
        fast = pipe.generate("q" + form, **options)
        between = pipe.stats()["runs"]
        slow = pipe.generate("q" + form, **options, logprobs=True)
        after = pipe.stats()["runs"]
        assert plain(fast.choices[0]) == plain(slow.choices[0])
        assert fast.usage.completion_tokens == slow.usage.completion_tokens
        assert len(slow.choices[0].logprobs or ()) == slow.usage.completion_tokens
        if form == "forced":
            steps = [sum(b.values()) - sum(a.values()) for a, b in ((before, between), (between, after))]
            assert steps[0] <= 5 < 30 < steps[1]
    stats = pipe.stats()["tokens"]
    assert stats["generated"] > 0


def test_generated_tokens_count_forced_ones(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="xyz")
    result = pipe.generate("a", temperature=0, **FORMS["forced"])
    assert pipe.stats()["tokens"]["generated"] == result.usage.completion_tokens == len(result.tokens)


@pytest.mark.parametrize("form", ["date", "forced"])
def test_a_cut_answer_says_length_and_a_whole_one_stop(open_tiny: Any, form: str) -> None:
    pipe, _ = open_tiny("bytes", text="xyz", load={"max_batch": 8})
    whole = pipe.generate("a", temperature=0, **FORMS[form])
    count = len(whole.tokens)
    assert (whole.finish_reason, whole.usage.completion_tokens) == ("stop", count)
    for limit in range(1, count):
        cut = pipe.generate("a", temperature=0, max_new_tokens=limit, **FORMS[form])
        assert plain(cut.choices[0]) == (whole.text[:limit], whole.tokens[:limit], "length")
    exact = pipe.generate("a", temperature=0, max_new_tokens=count, **FORMS[form])
    assert exact.choices == whole.choices


@pytest.mark.parametrize("form", list(FORMS))
def test_ends_that_are_ignored_leave_the_end_to_the_constraint(open_tiny: Any, form: str) -> None:
    pipe, package = open_tiny("bytes", text="ab", context_length=512)
    limit = 450 if form == "schema" else 70
    result = pipe.generate("a", temperature=0, ignore_eos=True, max_new_tokens=limit, **FORMS[form])
    open_end = form in ("free", "ends")
    assert result.finish_reason == ("length" if open_end else "stop")
    assert result.usage.completion_tokens == len(result.tokens) == (70 if open_end else len(result.text))
    assert open_end or fits(form, result.text)
    assert form == "free" or not set(result.tokens) & set(package.end_ids)


def test_an_end_token_ends_where_the_answer_may_end(open_tiny: Any) -> None:
    pipe, package = open_tiny("bytes", text="ab")
    result = pipe.generate("<|go|>", raw=True, temperature=0, regex="[a-z]{2,}")
    assert (result.text, result.finish_reason, result.usage.completion_tokens) == ("ab", "stop", 3)
    longer = pipe.generate("<|go|>", raw=True, temperature=0, regex="[a-z]{4,6}")
    assert re.fullmatch("ab[a-z]{2,4}", longer.text)
    b = package.vocabulary.id("b")
    for regex, text in (("a[a-z]{3}", 4), ("[a-z]{1,9}", None)):
        stopped = pipe.generate("<|go|>", raw=True, temperature=0, regex=regex, stop_token_ids=[b])
        assert "b" not in stopped.text
        assert re.fullmatch(regex, stopped.text)
        assert text in (None, len(stopped.text))


def test_stop_strings_cut_forced_text_where_they_begin(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="xyz")
    for stop in ("no more", "than", " is", "ans", "T"):
        events = list(pipe.stream("a", temperature=0, stop=stop, **FORMS["forced"]))
        result = collect_result(events)
        chosen = pipe.generate("a", temperature=0, stop=stop, logprobs=True, **FORMS["forced"])
        assert plain(result.choices[0]) == plain(chosen.choices[0])
        assert result.usage.completion_tokens == chosen.usage.completion_tokens
        assert stop not in result.text
        assert result.finish_reason == "stop"
        assert "".join(event.text for event in events) == result.text


def test_samples_are_bound_each_by_itself(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="xyz", peak=1.0, load={"max_batch": 4})
    ask = {"n": 5, "seed": 3, "max_new_tokens": 60}
    for form in ("date", "schema", "choice"):
        result = pipe.generate("a", **ask, **FORMS[form])
        assert all(fits(form, choice.text) for choice in result.choices if choice.finish_reason == "stop")
        assert len({choice.text for choice in result.choices}) > 1
        with pipe.stream("other", max_new_tokens=50, ignore_eos=True) as other:
            next(other)
            assert pipe.generate("a", **ask, **FORMS[form]).choices == result.choices


@pytest.mark.parametrize("update", ["in_place", "append", "scatter"])
def test_preempted_answers_keep_to_their_form(open_tiny: Any, update: str) -> None:
    page = 16 * 2 * 2 * 2 * 8 * 4 * (2 if update == "append" else 1)
    pipe, _ = open_tiny("kv", update=update, peak=1.0, load={"max_batch": 6, "memory": 17 * page * 4 // 3})
    requests = [
        {"seed": seed, "max_new_tokens": 140, "ignore_eos": True, **options}
        for seed, options in enumerate(({"regex": "[a-e]*"}, {}, {"regex": "([0-9]x|yy)*"}, {"regex": "[A-C]{200}"}))
    ]
    alone = [pipe.generate("p" * 30, **request).choices for request in requests]
    streams = [pipe.stream("p" * 30, **request) for request in requests]
    assert [collect_result(stream).choices for stream in streams] == alone
    assert sum(pipe.stats()["preemptions"].values()) > 0
    assert re.fullmatch("[a-e]*", alone[0][0].text)
    assert re.fullmatch("[A-C]{1,140}", alone[3][0].text)


@pytest.mark.parametrize("n", [1, 2])
def test_a_row_that_cannot_go_on_ends_alone(open_tiny: Any, n: int) -> None:
    """Tokens are banned that the constraint needs: at once, or later."""
    pipe, package = open_tiny("bytes", text="xyz", context_length=512, load={"max_batch": 8})
    digits = package.vocabulary.id_list("0123456789")
    good = asked(False)
    expected = {form: pipe.generate("q" + form, **options).choices for form, options in good.items()}
    for regex in (r"\d", r"a\d", r"[a-c]{3}-----\d"):
        streams = {form: pipe.stream("q" + form, **options) for form, options in good.items()}
        bad = list(pipe.stream("a", temperature=0, regex=regex, banned_token_ids=digits, n=n))
        assert {event.finish_reason for event in bad if event.finish_reason} == {"error"}
        assert len([event for event in bad if event.finish_reason]) == n
        assert isinstance(bad[-1].error, GenaiError)
        assert {form: collect_result(stream).choices for form, stream in streams.items()} == expected


def test_forced_token_ids_are_checked_against_the_constraint(open_tiny: Any) -> None:
    pipe, package = open_tiny("bytes", text="xyz")
    regex = "(ab-----cd|xyz)"
    first = package.vocabulary.encode("ab-")
    assert pipe.generate("q", temperature=0, regex=regex, forced_token_ids=first).text == "ab-----cd"
    for wrong in ("q", "abx", "ab-----d"):
        with pytest.raises(GenaiError, match="forced_token_ids"):
            pipe.generate("q", temperature=0, regex=regex, forced_token_ids=package.vocabulary.encode(wrong))


UNUSABLE: list[dict[str, Any]] = [
    {"regex": "("},
    {"regex": "a(?=b)"},
    {"regex": ""},
    {"regex": 3},
    {"grammar": "start: nothing"},
    {"grammar": "no grammar at all"},
    {"choices": []},
    {"choices": [""]},
    {"choices": "yes"},
    {"regex": "a", "choices": ["a"]},
    {"response_format": "json"},
    {"response_format": {}},
    {"response_format": {"type": "xml"}},
    {"response_format": {"type": "json_schema"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": None}}},
    schema({"$ref": "#/$defs/missing"}),
    schema({"type": "nothing"}),
    schema({"type": "string", "pattern": "("}),
    schema({"minimum": "low"}),
    schema({"enum": []}),
    schema({"tpye": "object"}),
    schema(False),
]


def test_what_cannot_be_used_is_refused_before_the_first_token(open_tiny: Any) -> None:
    pipe, _ = open_tiny("kv")
    session = pipe.session()
    for options in UNUSABLE:
        asks = (
            partial(pipe.generate, "a"),
            partial(pipe.stream, "a"),
            partial(pipe.run, {"prompt": "a"}),
            partial(session.chat, "a"),
            partial(pipe.score, "a"),
        )
        for ask in asks:
            with pytest.raises((ConstraintError, OptionError)) as caught:
                ask(**options)
            assert caught.value.param in options
    assert pipe.stats()["tokens"]["generated"] == 0


TREE = {
    "$defs": {"node": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}},
    "$ref": "#/$defs/node",
}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("not", {"not": {"type": "string"}}),
    ("if", {"if": {"type": "string"}, "then": {"minLength": 3}}),
    ("uniqueItems", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
    ("contains", {"type": "array", "contains": {"type": "integer"}}),
]
ENFORCED: list[dict[str, Any]] = [
    {"type": "object", "patternProperties": {"^a[0-9]$": {"type": "null"}}},
    {"type": "integer", "multipleOf": 7, "minimum": -50, "maximum": 5000},
    {"type": "object", "properties": {"a": {"type": "null"}, "b": {"const": 1}}},
    {"type": "number", "minimum": 0, "maximum": 12.5},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    {"anyOf": [{"type": "integer", "minimum": 3, "maximum": 5}, {"const": "x"}]},
    TREE,
]


@pytest.mark.parametrize(("keyword", "value"), REFUSED, ids=[keyword for keyword, _ in REFUSED])
def test_a_keyword_that_is_not_enforced_is_refused_by_name(open_tiny: Any, keyword: str, value: Any) -> None:
    pipe, _ = open_tiny("bytes")
    with pytest.raises(ConstraintError, match=f"'{keyword}'"):
        pipe.generate("a", **schema(value))
    assert pipe.stats()["tokens"]["generated"] == 0


def test_enforced_keywords_hold_in_one_batch(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="xyz", peak=1.0, context_length=512, load={"max_batch": 16})
    asks = [(value, seed) for value in ENFORCED for seed in range(6)]
    streams = [pipe.stream("a", seed=seed, max_new_tokens=150, **schema(value)) for value, seed in asks]
    whole = 0
    for stream, (value, _) in zip(streams, asks, strict=True):
        result = collect_result(stream)
        if result.finish_reason == "stop":
            jsonschema.Draft202012Validator(value).validate(json.loads(result.text))
            whole += 1
        else:
            assert (result.finish_reason, result.usage.completion_tokens) == ("length", 150)
    assert whole > len(asks) / 2


def test_a_closed_pipeline_fills_no_masks(open_tiny: Any) -> None:
    pipe, _ = open_tiny("bytes", text="xyz")
    pipe.generate("a", temperature=0, **FORMS["date"])
    assert any(thread.name.startswith("constraint-masks") for thread in threading.enumerate())
    pipe.close()
    assert not any(thread.name.startswith("constraint-masks") for thread in threading.enumerate())

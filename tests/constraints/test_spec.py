"""What requests may ask for: one constraint, in the shapes of OpenAI, refused with the option's name."""

from __future__ import annotations

import pytest

from genai_pipeline.constraints.spec import ConstraintSpec, Preamble, read_constraint
from genai_pipeline.errors import ConstraintError, OptionError


@pytest.mark.parametrize(
    "options", [{}, {"regex": None, "response_format": None}, {"response_format": {"type": "text"}}, {"temperature": 1}]
)
def test_no_constraint(options):
    assert read_constraint(options) is None


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, "json"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "json"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {}}}},
            "json",
        ),
        ({"regex": "a+"}, "regex"),
        ({"grammar": 'start: "a"'}, "grammar"),
        ({"choices": ["a", "b"]}, "choices"),
        ({"choices": ("a",), "response_format": {"type": "text"}}, "choices"),
    ],
)
def test_each_option_is_read(options, kind):
    spec = read_constraint(options)
    assert spec is not None
    assert spec.kind == kind
    assert spec.param == next(iter(options))
    assert spec == read_constraint(options)
    assert hash(spec) == hash(read_constraint(options))


@pytest.mark.parametrize(
    ("options", "param", "words"),
    [
        ({"response_format": "json"}, "response_format", "must be an object"),
        ({"response_format": {}}, "response_format", "has no type"),
        ({"response_format": {"type": "json_shema"}}, "response_format", "unknown type 'json_shema'"),
        ({"response_format": {"type": ["text"]}}, "response_format", "unknown type"),
        ({"response_format": {"type": "json_object", "schema": {}}}, "response_format", "unknown field 'schema'"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be an object"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format", "has no schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": None}}}, "response_format", "no schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"shema": {}}}},
            "response_format",
            "field 'shema'",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "name": 3}}},
            "response_format",
            "name must be",
        ),
        ({"regex": 3}, "regex", "non-empty string"),
        ({"regex": ""}, "regex", "non-empty string"),
        ({"regex": "\ud800"}, "regex", "not valid Unicode"),
        ({"grammar": ""}, "grammar", "non-empty string"),
        ({"grammar": "a" * 300_000}, "grammar", "at most"),
        ({"grammar": 'start: %json {"not": {}}'}, "grammar", "'not' at /not"),
        ({"grammar": "start: %json {x}"}, "grammar", "no JSON after %json in line 1"),
        ({"grammar": '%llguidance {"allow_invalid_utf8": true}\nstart: "a"'}, "grammar", "%llguidance"),
        ({"grammar": 'start[temperature=0.3]: "a"'}, "grammar", "'temperature'"),
        ({"grammar": 'start[capture="x"]: "a"'}, "grammar", "'capture'"),
        ({"choices": "ab"}, "choices", "list of non-empty strings"),
        ({"choices": []}, "choices", "list of non-empty strings"),
        ({"choices": ["a", ""]}, "choices", "list of non-empty strings"),
        ({"choices": ["a", 1]}, "choices", "list of non-empty strings"),
        ({"choices": [f"c{i}" for i in range(10_001)]}, "choices", "10000 strings"),
        ({"choices": ["\udfff"]}, "choices", "not valid Unicode"),
    ],
)
def test_unusable_constraints_are_refused_by_name(options, param, words):
    with pytest.raises(ConstraintError) as caught:
        read_constraint(options)
    assert caught.value.param == param
    assert words in caught.value.message
    assert caught.value.code == "invalid_constraint"


def test_strict_is_true_or_false():
    with pytest.raises(OptionError, match=r"json_schema\.strict"):
        read_constraint({"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}})


def test_one_constraint_at_a_time():
    with pytest.raises(OptionError, match="regex and choices exclude each other") as caught:
        read_constraint({"regex": "a", "choices": ["b"]})
    assert caught.value.param == "choices"


def test_choices_that_occur_twice_count_once():
    assert read_constraint({"choices": ["a", "b", "a"]}) == read_constraint({"choices": ["a", "b"]})


def test_a_spec_may_follow_reasoning():
    spec = ConstraintSpec("choices", '["a"]', "choices")
    preamble = Preamble("<think>", "</think>", mandatory=True)
    assert spec.after(preamble).preamble == preamble
    assert spec.after(preamble).after(None) == spec


def test_texts_and_comments_of_a_grammar_are_not_taken_for_schemas():
    text = 'start: "%json {" A // %json {"not": {}}\n# %llguidance\nA: /%json "[a-z]/ | "]: %llguidance"\n'
    spec = read_constraint({"grammar": text})
    assert spec is not None
    assert spec.source == text


@pytest.mark.parametrize(
    "schema",
    [
        {1: 2},
        {None: 1},
        {"properties": {1: {}}},
        {"properties": {"a": {2: 3}}},
        {"anyOf": [{1: 2}]},
        {"patternProperties": {4: {}}},
        {"enum": [{1: 2}]},
        {"const": ({1: 1},)},
        {"$defs": {3: {}}},
        {"default": {1: 2}},
        {"dependentRequired": {5: ["a"]}},
        {"items": {True: 1}},
    ],
)
def test_every_key_of_a_schema_is_a_text(schema):
    with pytest.raises(ConstraintError, match=r"the schema is no JSON: the key .* is no text") as caught:
        read_constraint({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    assert caught.value.param == "response_format"

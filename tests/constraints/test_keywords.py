"""Keywords and values that cannot be enforced are refused by name, with the place and what to do."""

from __future__ import annotations

import json

import pytest

from genai_pipeline.constraints.keywords import NO_DEMAND, REFUSED, SUPPORTED
from genai_pipeline.constraints.schemas import OPTIONS, ready_schema
from genai_pipeline.errors import ConstraintError

VALID = {  # a value that the metaschema accepts
    "not": {},
    "if": {},
    "then": {},
    "else": {},
    "uniqueItems": True,
    "contains": {},
    "minContains": 1,
    "maxContains": 1,
    "propertyNames": {},
    "dependentRequired": {},
    "dependentSchemas": {},
    "dependencies": {},
    "unevaluatedProperties": False,
    "unevaluatedItems": False,
    "additionalItems": False,
    "$anchor": "here",
    "$dynamicRef": "#",
    "$dynamicAnchor": "here",
    "$recursiveRef": "#",
    "$recursiveAnchor": True,
    "$vocabulary": {},
    "id": "x",
    "contentEncoding": "base64",
    "contentMediaType": "text/plain",
    "contentSchema": {},
    "nullable": True,
    "x-guidance": {"lenient": True},
}


def refused(schema):
    with pytest.raises(ConstraintError) as caught:
        ready_schema(schema, "response_format")
    assert caught.value.param == "response_format"
    return caught.value


@pytest.mark.parametrize("keyword", REFUSED)
@pytest.mark.parametrize("place", ["", "/properties/a", "/anyOf/0", "/$defs/a~1b"])
def test_a_keyword_that_is_not_enforced_is_refused_where_it_stands(keyword, place):
    inner = {keyword: VALID[keyword]}
    wrapped = {
        "": inner,
        "/properties/a": {"type": "object", "properties": {"a": inner}},
        "/anyOf/0": {"anyOf": [inner]},
        "/$defs/a~1b": {"$ref": "#/$defs/a~1b", "$defs": {"a/b": inner}},
    }[place]
    error = refused(wrapped)
    assert (error.keyword, error.pointer) == (keyword, f"{place}/{keyword}")
    assert keyword in error.message
    assert REFUSED[keyword] in error.hint
    assert "supported: " in error.hint


def test_every_refused_keyword_is_tried():
    assert VALID.keys() == REFUSED.keys()
    assert not SUPPORTED & REFUSED.keys()


@pytest.mark.parametrize("keyword", NO_DEMAND)
def test_a_refused_keyword_that_demands_nothing_is_left_out(keyword):
    assert ready_schema({keyword: NO_DEMAND[keyword]}, "p") == ready_schema({}, "p")


def test_a_misspelt_keyword_names_the_nearest():
    error = refused({"type": "object", "properties": {"a": {"minLenght": 3}}})
    assert (error.keyword, error.pointer) == ("minLenght", "/properties/a/minLenght")
    assert "did you mean 'minLength'?" in error.hint


@pytest.mark.parametrize("keyword", ["$id", "$schema"])
def test_identity_belongs_to_the_top(keyword):
    address = "https://json-schema.org/draft/2020-12/schema"
    assert ready_schema({keyword: address}, "p") == ready_schema({}, "p")
    assert refused({"items": {keyword: address}}).pointer == f"/items/{keyword}"


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"type": "strin"}, "type", "/type"),
        ({"properties": {"a": {"minLength": -1}}}, "minLength", "/properties/a/minLength"),
        ({"properties": [1]}, "properties", "/properties"),
        ({"required": "a"}, "required", "/required"),
        ({"items": [{}]}, "items", "/items"),
        ({"$schema": "http://json-schema.org/draft-07/schema", "items": [{}]}, "items", "/items"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema", "/$schema"),
        ({"$ref": "#/$defs/x"}, "$ref", "/$ref"),
        ({"$ref": "other.json"}, "$ref", "/$ref"),
        ({"$ref": "#/title", "title": "t"}, "$ref", "/$ref"),
        ({"$ref": "#"}, "$ref", "/$ref"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "$ref", "/$ref"),
        ({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]}, "required", "/required"),
        ({"type": "object", "properties": {"n": False}, "required": ["n"]}, "required", "/required"),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "items", "/items"),
        ({"format": "color"}, "format", "/format"),
        ({"format": "dat"}, "format", "/format"),
        ({"pattern": "(?=a)b"}, "pattern", "/pattern"),
        ({"pattern": "("}, "pattern", "/pattern"),
        ({"patternProperties": {"\\bx": {}}}, "patternProperties", "/patternProperties"),
        ({"patternProperties": {"a+": {}, "a+?": {}}}, "patternProperties", "/patternProperties"),
        ({"multipleOf": 0.1}, "multipleOf", "/multipleOf"),
        ({"multipleOf": 10**7}, "multipleOf", "/multipleOf"),
        ({"minimum": 1e300}, "minimum", "/minimum"),
        ({"exclusiveMaximum": 1e-9}, "exclusiveMaximum", "/exclusiveMaximum"),
        ({"maxLength": 10**6}, "maxLength", "/maxLength"),
        ({"const": 1e100}, "const", "/const"),
        ({"enum": [1, [{"a": 2**60}]]}, "enum", "/enum"),
        ({"const": {"a": "\x01"}}, "const", "/const"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "/oneOf"),
        ({"oneOf": [{"enum": [1, 2]}, {"enum": [2.0]}]}, "oneOf", "/oneOf"),
        ({"oneOf": [{"minimum": 2}, {"maximum": 1}]}, "oneOf", "/oneOf"),
        ({"type": "object", "minProperties": 2}, "minProperties", "/minProperties"),
        ({"type": "object", "properties": {"a": {}}, "minProperties": 1}, "minProperties", "/minProperties"),
        ({"type": "object", "properties": {"a": {}}, "maxProperties": 1}, "maxProperties", "/maxProperties"),
        ({"allOf": [{"type": "object", "minProperties": 1}, {}]}, "minProperties", "/allOf/0/minProperties"),
        ({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"maxProperties": 1}}}, "maxProperties", None),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_keyword(schema, keyword, pointer):
    error = refused(schema)
    assert error.keyword == keyword
    if pointer is not None:
        assert error.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "patternProperties": {"^a": {}, "b$": {}}}, "patternProperties"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "minimum"),
    ],
)
def test_what_only_the_library_finds_names_the_keyword(bench, schema, keyword):
    with pytest.raises(ConstraintError) as caught:
        bench.start({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
    assert (caught.value.keyword, caught.value.pointer) == (keyword, f"/{keyword}")


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"allOf": [{"type": "string"}, {"type": "null"}]},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"enum": []},
        {"enum": ["b"], "pattern": "^a"},
    ],
)
def test_a_schema_that_no_value_fits_is_refused(bench, schema):
    with pytest.raises(ConstraintError):
        bench.start({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})


@pytest.mark.parametrize("schema", [3, "x", [], None, {"a": float("nan")}, {1: 2, "b": {3}}, {"title": "\ud800"}])
def test_what_is_no_schema_is_refused(schema):
    refused(schema)


def test_a_schema_that_contains_itself_is_refused():
    schema: dict = {"type": "object"}
    schema["properties"] = {"a": schema}
    refused(schema)


def nested(depth):
    schema: dict = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubling(depth, branch):
    definitions = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, branch]} for i in range(depth)}
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{depth}": {}}}


WIDE = [{"type": "object", "properties": {f"p{i}": {}}} for i in range(20)]


@pytest.mark.parametrize(
    "schema",
    [
        nested(60),
        nested(2000),
        {"enum": [f"value {i}" for i in range(20_000)]},
        {"description": "x" * 300_000},
        {"anyOf": [{"type": "null"}] * 5000},
        {"allOf": [{"anyOf": WIDE}] * 3},
        doubling(30, {"anyOf": WIDE}),
        {"properties": {f"p{i}": {} for i in range(300)}},
        {"oneOf": [{"const": i} for i in range(1000)]},
        {"pattern": "(" * 1000 + ")" * 1000},
        {"pattern": "a" * 70_000},
        {"pattern": "a{999999999}"},
    ],
)
def test_schemas_that_grow_without_measure_are_refused(schema):
    refused(schema)  # compiled, each would take minutes, or more memory than there is


def test_large_but_sound_schemas_compile(bench):
    for schema in (
        {"enum": [f"value {i}" for i in range(5000)]},
        {
            "type": "object",
            "properties": {f"p{i}": {"type": "integer"} for i in range(240)},
            "additionalProperties": False,
        },
        nested(20),
        doubling(30, {"type": "object"}),
        {"type": "array", "minItems": 100_000},
        {"type": "string", "pattern": "^(?:a{1,1000}){1,1000}$"},
    ):
        state = bench.start({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}})
        bench.run(state, 1, 60)


def test_equal_demands_are_equal_text():
    one = {
        "title": "One",
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "null"}},
    }
    other = {"type": "object", "properties": {"a": {"$ref": "#/definitions/y"}}, "definitions": {"y": {"type": "null"}}}
    assert ready_schema(one, "p") == ready_schema(other, "p")


def test_the_order_of_properties_is_kept():
    ready = json.loads(ready_schema({"properties": {"b": {}, "a": {}}}, "p"))
    assert list(ready["properties"]) == ["b", "a"]
    assert ready["x-guidance"] == OPTIONS


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"\\u0061":"x"}', False),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"b":"x","a":1}', False),  # declared ones first
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a":1,"b":"x"}', True),
        ({"type": "string", "maxLength": 1}, '"\\ud83d\\ude00"', False),
        ({"type": "string", "maxLength": 1}, '"😀"', True),
        ({"type": "string", "maxLength": 1}, '"\\n"', True),
        ({"type": "string"}, '"\x01"', False),
        ({"type": "integer"}, "007", False),
        ({"type": "integer"}, "-12", True),
        ({"type": "number"}, "1.5e-7", True),
        ({"format": "date", "type": "string"}, '"2023-02-29"', False),
        ({"format": "date", "type": "string"}, '"2024-02-29"', True),
        ({"format": "date", "type": "string"}, '"1900-02-29"', False),
        ({"format": "date", "type": "string"}, '"2000-02-29"', True),
        ({"format": "date", "type": "string"}, '"2023-04-31"', False),
        ({"format": "date", "type": "string"}, '"0000-01-01"', False),
        ({"format": "time", "type": "string"}, '"23:59:60Z"', False),
        ({"format": "time", "type": "string"}, '"23:59:59.5+14:00"', True),
        ({"format": "hostname", "type": "string"}, json.dumps("a" * 64), False),
        ({"format": "hostname", "type": "string"}, json.dumps(".".join(["a" * 63] * 4)), False),
        ({"format": "hostname", "type": "string"}, '"a-b.example"', True),
        ({"type": "object"}, '{"a" : [1, 2]}', True),
        ({"type": "object"}, '{"a":' + " " * 41 + "1}", False),  # white space is bounded
        ({"type": "object"}, '{"a":' + " " * 40 + "1}", True),
        ({"type": "object"}, ' {"a":1}', False),
    ],
)
def test_single_values(bench, schema, text, fits):
    options = {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}
    assert bench.accepts(options, text) is fits

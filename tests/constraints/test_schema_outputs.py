"""Whatever random logits choose under a schema's masks is valid by an independent validator, keyword by keyword."""

from __future__ import annotations

import datetime
import ipaddress
import json
import re
import urllib.parse
import uuid
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

RUNS = 100
MOST_TOKENS = 150


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    """A closed object schema."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


INTEGER, STRING, NULL, BOOLEAN = ({"type": name} for name in ("integer", "string", "null", "boolean"))
TREE = obj({"value": INTEGER, "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}, "value")

SCHEMAS: dict[str, Any] = {
    # anything, types
    "true": True,
    "empty": {},
    "type string": STRING,
    "type integer": INTEGER,
    "type number": {"type": "number"},
    "type boolean": BOOLEAN,
    "type null": NULL,
    "type array": {"type": "array"},
    "type object": {"type": "object"},
    "types": {"type": ["integer", "null", "boolean"]},
    "types with keywords of one": {"type": ["string", "integer"], "maxLength": 3, "minimum": 5},
    "describing keywords": {
        "title": "t",
        "description": "d",
        "default": 1,
        "examples": [2],
        "$comment": "c",
        **INTEGER,
    },
    "extension": {"x-order": 3, "type": "null"},
    "draft 7": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": INTEGER, "maxItems": 2},
    "draft 2019-09": {"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "boolean"},
    # numbers
    "minimum": {"type": "integer", "minimum": 17},
    "maximum": {"type": "integer", "maximum": -17},
    "integer range": {"type": "integer", "minimum": -5, "maximum": 123},
    "exclusive range": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 12},
    "fractional bounds of integers": {"type": "integer", "exclusiveMinimum": 1.5, "maximum": 9.5},
    "number range": {"type": "number", "minimum": 0.25, "maximum": 2.5},
    "negative number range": {"type": "number", "minimum": -2.75, "maximum": -0.5},
    "exclusive number range": {"type": "number", "exclusiveMinimum": 5, "exclusiveMaximum": 6},
    "one sided number": {"type": "number", "minimum": 3},
    "large bounds": {"type": "integer", "minimum": -(10**15), "maximum": 10**15},
    "multipleOf": {"type": "integer", "multipleOf": 7},
    "multipleOf in a range": {"type": "integer", "multipleOf": 3, "minimum": 10, "maximum": 50},
    "multipleOf quarter": {"type": "number", "multipleOf": 0.25},
    "multipleOf one and a half": {"type": "number", "multipleOf": 1.5, "minimum": 0},
    "multipleOf of numbers": {"type": "number", "multipleOf": 4},
    "bounds without a type": {"minimum": 3},
    "multipleOf without a type": {"multipleOf": 5, "type": ["integer", "string"], "maxLength": 2},
    # strings
    "minLength": {"type": "string", "minLength": 3},
    "maxLength": {"type": "string", "maxLength": 4},
    "length": {"type": "string", "minLength": 2, "maxLength": 2},
    "maxLength 0": {"type": "string", "maxLength": 0},
    "length without a type": {"maxLength": 2, "minLength": 1},
    "pattern": {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]+$"},
    "pattern found anywhere": {"type": "string", "pattern": "[0-9]"},
    "pattern at the start": {"type": "string", "pattern": "^ab", "maxLength": 9},
    "pattern at the end": {"type": "string", "pattern": "ab$", "maxLength": 9},
    "pattern with anchors per alternative": {"type": "string", "pattern": "^a|b$", "maxLength": 6},
    "pattern of classes": {"type": "string", "pattern": r"^\d\w\s\D\W\S$"},
    "pattern of negated classes": {"type": "string", "pattern": r"^[^\d][^\w][^\s][^\D][^\W][^\S]$"},
    "pattern of mixed classes": {"type": "string", "pattern": r"^[\W\d]{3}[^a-z\s]{3}$"},
    "pattern dot": {"type": "string", "pattern": "^a.{3}b$"},
    "pattern lazy": {"type": "string", "pattern": "^a+?b*?c??$"},
    "pattern escapes": {"type": "string", "pattern": r"^\"\\\/\n\t\x41\u00e9\$\.\[\]\{\}$"},
    "pattern groups": {"type": "string", "pattern": "^(?:x|(y|z)(?P<name>1|2)){3}$"},
    "pattern braces as text": {"type": "string", "pattern": "^a{x}{2$"},
    "pattern unicode": {"type": "string", "pattern": "^[α-ω]{2}[😀-😎]é$"},
    "pattern and length": {"type": "string", "pattern": "^[a-c]+$", "minLength": 2, "maxLength": 4},
    "format date": {"type": "string", "format": "date"},
    "format time": {"type": "string", "format": "time"},
    "format date-time": {"type": "string", "format": "date-time"},
    "format duration": {"type": "string", "format": "duration"},
    "format email": {"type": "string", "format": "email", "maxLength": 60},
    "format hostname": {"type": "string", "format": "hostname"},
    "format ipv4": {"type": "string", "format": "ipv4"},
    "format ipv6": {"type": "string", "format": "ipv6"},
    "format uuid": {"type": "string", "format": "uuid"},
    "format uri": {"type": "string", "format": "uri", "maxLength": 60},
    "format with a pattern": {"type": "string", "format": "ipv4", "pattern": "^1"},
    "own format with a pattern": {"type": "string", "format": "date", "pattern": "^19"},
    # listed values
    "const": {"const": "one"},
    "const number": {"const": 1.5},
    "const integral float": {"const": 3.0},
    "const object": {"const": {"a": [1, {"b": None}], "c": "x y"}},
    "const escapes": {"const": 'q"\\/\n\t\u2028é😀'},
    "enum": {"enum": ["red", "green", 3, 4.25, None, True, [], {}]},
    "enum with a type": {"enum": [1, 2, "a", None], "type": ["string", "null"]},
    "enum with a bound": {"enum": [1, 2, 3], "minimum": 2},
    "enum with a pattern": {"enum": ["ab", "b"], "pattern": "^a"},
    "enum of objects with required": {"enum": [{"a": 1}, {"b": 1}], "required": ["a"]},
    # arrays
    "items": {"type": "array", "items": BOOLEAN},
    "items false": {"type": "array", "items": False},
    "minItems": {"type": "array", "items": NULL, "minItems": 2},
    "maxItems": {"type": "array", "items": NULL, "maxItems": 2},
    "item count": {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 3},
    "prefixItems": {"type": "array", "prefixItems": [NULL, BOOLEAN], "maxItems": 4},
    "prefixItems closed": {"type": "array", "prefixItems": [NULL, BOOLEAN, INTEGER], "items": False},
    "prefixItems demanded": {"type": "array", "prefixItems": [NULL, BOOLEAN], "minItems": 3, "items": NULL},
    "prefixItems cut": {"type": "array", "prefixItems": [NULL, BOOLEAN], "maxItems": 1},
    "nested arrays": {"type": "array", "items": {"type": "array", "items": INTEGER, "maxItems": 2}, "maxItems": 2},
    "no unique items asked": {"type": "array", "items": NULL, "uniqueItems": False},
    # objects
    "properties": obj({"a": INTEGER, "b": STRING}),
    "required": obj({"a": INTEGER, "b": STRING}, "b"),
    "all required": obj({"a": INTEGER, "b": NULL, "c": BOOLEAN}, "a", "b", "c"),
    "open object": {"type": "object", "properties": {"a": INTEGER}},
    "required beside properties": {"type": "object", "required": ["x"], "additionalProperties": INTEGER},
    "additionalProperties": {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": {"maxLength": 2}},
    "patternProperties": {"type": "object", "patternProperties": {"^a": INTEGER}, "additionalProperties": False},
    "patternProperties apart": {"type": "object", "patternProperties": {"^a": INTEGER, "^b": NULL}},
    "patternProperties and properties": {
        "type": "object",
        "properties": {"ab": INTEGER},
        "patternProperties": {"^a": {"minimum": 5}},
        "required": ["ab"],
    },
    "patternProperties demanded": {"type": "object", "required": ["ax"], "patternProperties": {"^a": INTEGER}},
    "minProperties": {"type": "object", "minProperties": 1},
    "minProperties above required": {
        "type": "object",
        "properties": {"a": NULL, "b": NULL},
        "required": ["a", "b"],
        "minProperties": 3,
    },
    "minProperties held anyway": obj({"a": NULL, "b": NULL}, "a", minProperties=1),
    "maxProperties": {"type": "object", "maxProperties": 1},
    "maxProperties 0": {"type": "object", "maxProperties": 0},
    "maxProperties held anyway": obj({"a": NULL, "b": NULL}, maxProperties=2),
    "forbidden property": {"type": "object", "properties": {"a": False, "b": NULL}},
    "object keywords without a type": {"properties": {"a": INTEGER}, "required": ["a"]},
    "nested objects": obj({"in": obj({"deep": obj({"x": BOOLEAN}, "x")}, "deep")}, "in"),
    "unicode names": obj({'ключ "q"\n': {"const": "знач\\😀"}, "naïve": NULL, "日本": NULL}, 'ключ "q"\n', "日本"),
    "names that differ in escapes": {"type": "object", "properties": {"a/b~c": INTEGER, "a\\b": NULL, "": BOOLEAN}},
    "array of objects": {"type": "array", "items": obj({"id": INTEGER}, "id"), "minItems": 1, "maxItems": 2},
    # combinations
    "anyOf": {"anyOf": [INTEGER, {"type": "string", "maxLength": 2}]},
    "anyOf with a false branch": {"anyOf": [False, NULL]},
    "anyOf beside properties": {
        "type": "object",
        "properties": {"a": INTEGER},
        "anyOf": [{"required": ["a"]}, {"properties": {"b": NULL}, "required": ["b"]}],
    },
    "anyOf of ranges": {"type": "integer", "anyOf": [{"minimum": 100}, {"maximum": -100}]},
    "oneOf by type": {"oneOf": [INTEGER, STRING, NULL]},
    "oneOf by const": {
        "oneOf": [
            obj({"kind": {"const": "cat"}, "lives": INTEGER}, "kind"),
            obj({"kind": {"const": "dog"}, "name": STRING}, "kind", "name"),
        ],
        "discriminator": {"propertyName": "kind"},
    },
    "oneOf by enum": {"oneOf": [{"enum": [1, 2]}, {"enum": [3, 4]}, {"const": "x"}]},
    "oneOf by reference": {
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {"a": INTEGER, "b": {"enum": ["x", "y"]}},
    },
    "oneOf beside anyOf": {"oneOf": [INTEGER, STRING], "anyOf": [{"maximum": 3}, {"maxLength": 2}]},
    "allOf of objects": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"minimum": 3}, "b": NULL}, "required": ["b"]},
        ]
    },
    "allOf of closed objects": {"allOf": [obj({"a": INTEGER}), {"properties": {"b": NULL}}]},
    "allOf of open objects": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": STRING},
            {
                "properties": {"b": {"minLength": 2}},
                "additionalProperties": {"type": ["integer", "null"]},
                "required": ["b"],
            },
        ]
    },
    "allOf of strings": {
        "allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "b$"}, {"minLength": 3}, {"maxLength": 5}]
    },
    "allOf of numbers": {
        "allOf": [{"type": "integer", "minimum": 1}, {"maximum": 30}, {"multipleOf": 4}, {"multipleOf": 6}]
    },
    "allOf of arrays": {
        "allOf": [{"type": "array", "items": INTEGER}, {"prefixItems": [{"minimum": 4}], "minItems": 2, "maxItems": 3}]
    },
    "allOf of enums": {"allOf": [{"enum": [1, 2, "a"]}, {"enum": ["a", 2]}]},
    "allOf of anyOfs": {"allOf": [{"anyOf": [INTEGER, STRING]}, {"anyOf": [{"type": "string", "maxLength": 1}, NULL]}]},
    "combinations within combinations": {
        "anyOf": [{"allOf": [INTEGER, {"anyOf": [{"minimum": 9}, {"maximum": -9}]}]}, {"oneOf": [NULL, BOOLEAN]}]
    },
    # references
    "$ref": obj({"a": {"$ref": "#/$defs/name"}}, "a", **{"$defs": {"name": {"type": "string", "maxLength": 3}}}),
    "$ref to definitions": {"$ref": "#/definitions/n", "definitions": {"n": NULL}},
    "$ref with siblings": {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": INTEGER}},
    "$ref through $ref": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": BOOLEAN}},
    "$ref to a property": obj({"a": {"type": "integer", "minimum": 7}, "b": {"$ref": "#/properties/a"}}, "a", "b"),
    "$ref with escapes": {"$ref": "#/$defs/a~1b~0c%20d", "$defs": {"a/b~c d": NULL}},
    "$ref into a oneOf": {
        "type": "array",
        "items": {"$ref": "#/$defs/x/oneOf/1"},
        "$defs": {"x": {"oneOf": [NULL, BOOLEAN]}},
    },
    "$ref into patternProperties": {
        "type": "object",
        "patternProperties": {"^a": NULL},
        "additionalProperties": {"$ref": "#/patternProperties/%5Ea"},
    },
    "recursive tree": TREE,
    "recursive list": {
        "$ref": "#/$defs/node",
        "$defs": {"node": obj({"v": INTEGER, "next": {"anyOf": [NULL, {"$ref": "#/$defs/node"}]}}, "v", "next")},
    },
    "mutual recursion": {
        "$ref": "#/$defs/a",
        "$defs": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/b"}, "maxItems": 2},
            "b": obj({"a": {"$ref": "#/$defs/a"}, "leaf": BOOLEAN}, "leaf"),
        },
    },
    "recursive anyOf": {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]},
    # as people write them
    "person": obj(
        {
            "name": {"type": "string", "minLength": 1, "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"anyOf": [{"type": "string", "format": "email", "maxLength": 40}, NULL]},
            "tags": {"type": "array", "items": {"enum": ["new", "vip", "staff"]}, "maxItems": 3},
            "address": obj({"city": STRING, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "city"),
        },
        *("name", "age"),
    ),
    "event": obj(
        {
            "id": {"type": "string", "format": "uuid"},
            "at": {"type": "string", "format": "date-time"},
            "payload": {
                "oneOf": [
                    obj({"type": {"const": "text"}, "body": STRING}, "type", "body"),
                    obj(
                        {
                            "type": {"const": "move"},
                            "to": {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2},
                        },
                        "type",
                        "to",
                    ),
                ]
            },
        },
        *("id", "payload"),
    ),
}


def is_duration(text: str) -> bool:
    whole = r"P(?:\d+W|(?=.)(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)"
    return re.fullmatch(whole, text) is not None


def is_hostname(text: str) -> bool:
    label = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
    return len(text) <= 253 and all(re.fullmatch(label, part) and len(part) <= 63 for part in text.split("."))


def is_email(text: str) -> bool:
    local, _, domain = text.rpartition("@")
    atoms = re.fullmatch(r"[\w!#$%&'*+/=?^`{|}~-]+(?:\.[\w!#$%&'*+/=?^`{|}~-]+)*", local, re.ASCII)
    return atoms is not None and (is_hostname(domain) or (domain[:1] == "[" and domain[-1:] == "]"))


def is_uri(text: str) -> bool:
    parts = urllib.parse.urlsplit(text)
    return (
        text.isascii()
        and " " not in text
        and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", text.split(":")[0])
        and bool(parts)
    )


TWINS: dict[str, Callable[[str], Any]] = {
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "date-time": datetime.datetime.fromisoformat,
    "duration": is_duration,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uuid": uuid.UUID,
    "uri": is_uri,
}


def format_checker() -> jsonschema.FormatChecker:
    """Every enforced format by a twin of the standard library."""
    checker = jsonschema.FormatChecker(formats=())
    for name, twin in TWINS.items():
        checker.checks(name, raises=ValueError)(
            lambda text, twin=twin: not isinstance(text, str) or twin(text) is not False
        )
    return checker


@pytest.mark.parametrize("name", SCHEMAS)
def test_outputs_fit_the_schema(bench, schema, name):
    wanted = SCHEMAS[name]
    constraint = bench.compiler.compile(bench.spec(schema(wanted)))
    kind = jsonschema.validators.validator_for(wanted, default=jsonschema.Draft202012Validator)
    validator = kind(wanted, format_checker=format_checker())
    whole = 0
    for seed in range(RUNS):
        tokens, ended = bench.run(constraint.start(), seed, MOST_TOKENS)
        if ended:
            whole += 1
            text = bench.text(tokens)
            errors = [error.message for error in validator.iter_errors(json.loads(text))]
            assert not errors, text
    assert whole >= RUNS // 4  # the others were cut


def test_enough_schemas():
    assert len(SCHEMAS) >= 80

"""Checks of keyword values: what is valid JSON Schema and yet cannot be enforced so that every validator agrees."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from genai_pipeline.constraints.formats import FORMATS
from genai_pipeline.constraints.patterns import PatternError, found_anywhere
from genai_pipeline.constraints.schema_tree import SchemaNode, SchemaTree
from genai_pipeline.problems import nearest, one_of, shown

MAX_COUNT: Final = 100_000  # of minItems, maxLength, ...
MAX_LISTED: Final = 10_000  # values of an enum
MAX_OPTIONAL: Final = 240  # properties that may be left out of one object; each costs rows of the parser
MAX_MULTIPLE: Final = 1_000_000
_EXACT: Final = 2**53  # whole numbers below it are the same to all libraries
_LARGEST: Final = 10**15
MOST_FRACTIONAL: Final = 100_000  # bounds above it are whole
_BINARY_DIGITS: Final = 10  # of a multipleOf that is no whole number

_COUNTS: Final = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def check_values(tree: SchemaTree, merged: frozenset[str]) -> None:
    """Refuse values of keywords that cannot be enforced. Raises ConstraintError."""
    for node in tree:
        if isinstance(node.value, Mapping):
            _check_counts(tree, node)
            _check_numbers(tree, node)
            _check_listed(tree, node)
            _check_strings(tree, node)
            _check_objects(tree, node, merged)


def _check_counts(tree: SchemaTree, node: SchemaNode) -> None:
    for keyword in _COUNTS:
        if node.get(keyword, 0) > MAX_COUNT:
            raise tree.refuse(keyword, node, f"is {shown(node.get(keyword))}, at most {MAX_COUNT} is counted")


def _check_numbers(tree: SchemaTree, node: SchemaNode) -> None:
    for keyword in _BOUNDS:
        bound = node.get(keyword, 0)
        if abs(bound) > _LARGEST or "e" in repr(bound):
            why = f"is {shown(bound)}; bounds reach to {_LARGEST} and need no exponent"
            raise tree.refuse(keyword, node, why, "leave the bound out, or take one that is nearer")
        if abs(bound) > MOST_FRACTIONAL and bound != int(bound):
            raise tree.refuse(keyword, node, f"is {shown(bound)}; bounds above {MOST_FRACTIONAL} are whole numbers")
    multiple = node.get("multipleOf", 1)
    scaled = multiple * 2**_BINARY_DIGITS
    if multiple > MAX_MULTIPLE or scaled != math.floor(scaled):
        why = f"is {shown(multiple)}; it must be at most {MAX_MULTIPLE} and exact in binary, such as 5, 0.5 or 0.25"
        hint = "validators divide binary fractions and would disagree; use a pattern on a string, or integer hundredths"
        raise tree.refuse("multipleOf", node, why, hint)


def _check_listed(tree: SchemaTree, node: SchemaNode) -> None:
    for keyword, values in (("enum", node.get("enum", [])), ("const", [node.get("const")])):
        if len(values) > MAX_LISTED:
            raise tree.refuse(keyword, node, f"lists {len(values)} values, at most {MAX_LISTED} are read")
        for value in _leaves(values):
            if isinstance(value, str) and _unwritable(value):
                why = f"has the text {shown(value)}, with a control character that outputs never have"
                raise tree.refuse(keyword, node, why, "of control characters, \\b \\f \\n \\r and \\t can be written")
            if _inexact(value):
                why = f"has the number {shown(value)}, which libraries read differently"
                raise tree.refuse(keyword, node, why, f"use numbers up to {_LARGEST} without an exponent")


def _check_strings(tree: SchemaTree, node: SchemaNode) -> None:
    name = node.get("format")
    if name is not None and name not in FORMATS:
        hint = nearest(name, FORMATS) or f"formats are: {one_of(FORMATS, limit=len(FORMATS))}"
        raise tree.refuse("format", node, f"is {shown(name)}, which is not supported", hint)
    patterns = [("pattern", node.get("pattern"))] if node.get("pattern") is not None else []
    patterns += [("patternProperties", pattern) for pattern in node.get("patternProperties", ())]
    for keyword, pattern in patterns:
        try:
            found_anywhere(pattern)
        except PatternError as error:
            raise tree.refuse(keyword, node, f"has the pattern {shown(pattern)}: {error}") from error


def _check_objects(tree: SchemaTree, node: SchemaNode, merged: frozenset[str]) -> None:
    properties, required = set(node.get("properties", ())), set(node.get("required", ()))
    optional = properties - required
    if len(optional) > MAX_OPTIONAL:
        why = f"has {len(optional)} properties that may be left out, at most {MAX_OPTIONAL} are followed"
        raise tree.refuse("properties", node, why, "list more of them in required, or group them in inner objects")
    least, most = node.get("minProperties", 0), node.get("maxProperties", MAX_COUNT)
    open_ended = node.get("additionalProperties") is not False or bool(node.get("patternProperties"))
    needs_count = {
        "minProperties": least > len(required),
        "maxProperties": most < len(properties | required) or (open_ended and "maxProperties" in _own(node)),
    }
    together = node.pointer in merged or bool(_own(node) & {"$ref", "allOf", "anyOf", "oneOf"})
    for keyword, counts in needs_count.items():
        if counts and (together or optional):
            why = "is counted only where all properties are required and no other schema applies to the object"
            raise tree.refuse(keyword, node, why, "list the properties in required")
    if least > len(required) + 1:
        why = f"is {least}, more than one above the number of required properties: names could be given twice"
        raise tree.refuse("minProperties", node, why, "list the properties in required")


def _own(node: SchemaNode) -> set[str]:
    return set(node.value) if isinstance(node.value, Mapping) else set()


def _leaves(value: Any) -> Iterator[Any]:
    """All scalars of a JSON value, names of members included."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
        else:
            yield item


def _unwritable(text: str) -> bool:
    return any((ord(character) < 32 and character not in "\b\f\n\r\t") or character == "\x7f" for character in text)


def _inexact(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) > (_EXACT if isinstance(value, int) else _LARGEST) or "e" in repr(value)

"""Which JSON Schema keywords are enforced, which only describe, and what to do without the others.

The list is ours, not the grammar library's: a keyword is here because it was tested that every output keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genai_pipeline.errors import ConstraintError
from genai_pipeline.problems import nearest, one_of

SINGLE: Final = ("items", "additionalProperties")  # keywords whose value is a schema
MAPS: Final = ("properties", "patternProperties", "$defs", "definitions")  # ... schemas by name
LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")  # ... a list of schemas

VALUES: Final = (
    *("type", "enum", "const", "$ref", "required", "pattern", "format", "multipleOf"),
    *("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
)
SUPPORTED: Final = frozenset((*SINGLE, *MAPS, *LISTS, *VALUES))
DEFINITIONS: Final = frozenset({"$defs", "definitions"})  # hold schemas, say nothing by themselves

DESCRIBING: Final = frozenset(
    (
        *("title", "description", "default", "example", "examples"),
        *("deprecated", "readOnly", "writeOnly", "$comment"),
        "discriminator",  # of OpenAPI: which property tells the branches of a oneOf apart
    )
)

_DRAFT: Final = "draft 2020-12 has {} instead"
REFUSED: Final[Mapping[str, str]] = {
    "not": "say what is allowed: enum, pattern, or anyOf",
    "if": "write the cases as anyOf",
    "then": "write the cases as anyOf",
    "else": "write the cases as anyOf",
    "uniqueItems": "leave it out, and drop repeated items after the answer",
    "contains": "use prefixItems for places that are known, or anyOf of whole arrays",
    "minContains": "use minItems",
    "maxContains": "use maxItems",
    "propertyNames": "use patternProperties with additionalProperties false",
    "dependentRequired": "write the cases as anyOf",
    "dependentSchemas": "write the cases as anyOf",
    "dependencies": "write the cases as anyOf",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
    "additionalItems": _DRAFT.format("items beside prefixItems"),
    "$anchor": "refer to the place by its JSON pointer: #/$defs/name",
    "$dynamicRef": "use $ref with a JSON pointer: #/$defs/name",
    "$dynamicAnchor": "use $ref with a JSON pointer: #/$defs/name",
    "$recursiveRef": "use $ref: #",
    "$recursiveAnchor": "use $ref: #",
    "$vocabulary": "it belongs into metaschemas",
    "id": _DRAFT.format("$id"),
    "contentEncoding": "use pattern",
    "contentMediaType": "leave it out: what a string holds is not constrained",
    "contentSchema": "leave it out: what a string holds is not constrained",
    "nullable": 'it is of OpenAPI 3.0; use type: [..., "null"]',
    "x-guidance": "whitespace and escapes are settled for all schemas alike",
}
NO_DEMAND: Final = {"uniqueItems": False}  # refused keywords with the value that asks for nothing


def describes(keyword: str) -> bool:
    """Whether a keyword says nothing about which values are valid."""
    return keyword in DESCRIBING or (keyword.startswith("x-") and keyword not in REFUSED)


def refuse_keyword(keyword: str, pointer: str, param: str) -> ConstraintError:
    """The error for a keyword that cannot be enforced; ``pointer`` is where it stands."""
    message = f"the schema keyword '{keyword}' at {pointer} is not supported"
    advice = REFUSED.get(keyword) or nearest(keyword, (*SUPPORTED, *DESCRIBING))
    supported = f"supported: {one_of(SUPPORTED, limit=len(SUPPORTED))}"
    hint = f"{advice}; {supported}" if advice else supported
    return ConstraintError(message, param=param, keyword=keyword, pointer=pointer, hint=hint)

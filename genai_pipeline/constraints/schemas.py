"""A JSON Schema made ready for the grammar library: checked whole, stripped of what only describes, rewritten.

What the library enforces less strictly than a validator is rewritten here: patterns into a syntax both sides share, a
``oneOf`` of branches that exclude each other into an ``anyOf``, counts of properties that hold anyway left out, formats
into exact patterns. Escapes that could spell a name or text in a second way (``\\u0061``) are not written at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, Final

from genai_pipeline.constraints.formats import LENGTHS, PATTERNS
from genai_pipeline.constraints.keywords import DEFINITIONS, LISTS, MAPS, SINGLE, SUPPORTED
from genai_pipeline.constraints.patterns import found_anywhere
from genai_pipeline.constraints.schema_meaning import check_alternatives, check_finite, disjoint, merged
from genai_pipeline.constraints.schema_tree import SchemaNode, SchemaTree
from genai_pipeline.constraints.schema_values import MOST_FRACTIONAL, check_values

OPTIONS_KEY: Final = "x-guidance"  # where the grammar library reads options in a schema
OPTIONS: Final[Mapping[str, Any]] = {
    "whitespace_pattern": r"[ \t\r\n]{1,40}",  # bounded, or a model could write spaces for ever
    "json_allowed_escapes": '"\\bfnrt',
}
_STEP_INSIDE: Final = 1e-9
MAX_BRANCHES: Final = 128  # of a oneOf, which are compared two by two


def ready_schema(schema: Any, param: str) -> str:
    """The schema as JSON for the grammar library, equal for equal demands. Raises ConstraintError by keyword.

    ``param`` is what a client called the thing that holds the schema, e.g. ``response_format`` or ``tools``.
    """
    tree = SchemaTree(schema, param)
    check_finite(tree)
    check_alternatives(tree)
    check_values(tree, merged(tree))
    return json.dumps(_Writer(tree).document(), ensure_ascii=False, separators=(",", ":"))


class _Writer:
    """Writes a checked schema; what is referred to moves under ``$defs``, so that no rewriting breaks a pointer."""

    def __init__(self, tree: SchemaTree) -> None:
        self._tree = tree
        self._names: dict[str, str] = {}  # of schemas that are referred to, by pointer

    def document(self) -> dict[str, Any]:
        """The whole schema with the options that hold for all schemas."""
        root = self._schema(self._tree[""])
        if isinstance(root, bool):
            root = {} if root else {"enum": []}
        definitions: dict[str, Any] = {}
        while len(definitions) < len(self._names):
            pointer, name = list(self._names.items())[len(definitions)]
            definitions[name] = self._schema(self._tree[pointer])
        return {OPTIONS_KEY: dict(OPTIONS), **root, **({"$defs": definitions} if definitions else {})}

    def _schema(self, node: SchemaNode) -> Any:
        if isinstance(node.value, bool):
            return node.value
        wanted = SUPPORTED - DEFINITIONS
        result = {keyword: self._value(node, keyword) for keyword in node.value if keyword in wanted}
        for keyword, rewrite in _REWRITES.items():
            if keyword in result:
                rewrite(self._tree, node, result)
        return result

    def _value(self, node: SchemaNode, keyword: str) -> Any:
        """A keyword's value, with the schemas in it rewritten."""
        if keyword == "$ref":
            return self._reference(self._tree.target(node))
        inner = [self._schema(self._tree[pointer]) for pointer in node.of(keyword)]
        if keyword in SINGLE:
            return inner[0]
        if keyword in MAPS:
            return dict(zip(node.get(keyword), inner, strict=True))
        return inner if keyword in LISTS else node.get(keyword)

    def _reference(self, target: SchemaNode) -> str:
        if not target.pointer:
            return "#"
        return f"#/$defs/{self._names.setdefault(target.pointer, f's{len(self._names)}')}"


def _pattern(_: SchemaTree, __: SchemaNode, result: dict[str, Any]) -> None:
    result["pattern"] = found_anywhere(result["pattern"])


def _pattern_properties(tree: SchemaTree, node: SchemaNode, result: dict[str, Any]) -> None:
    patterns = {found_anywhere(pattern): schema for pattern, schema in result["patternProperties"].items()}
    if len(patterns) < len(result["patternProperties"]):
        raise tree.refuse("patternProperties", node, "has two patterns that mean the same")
    result["patternProperties"] = patterns


def _format(_: SchemaTree, __: SchemaNode, result: dict[str, Any]) -> None:
    if result["format"] not in PATTERNS:
        return
    name = result.pop("format")
    pattern = found_anywhere(PATTERNS[name])
    if name in LENGTHS:
        result["maxLength"] = min(LENGTHS[name], result.get("maxLength", LENGTHS[name]))
    if "pattern" in result:
        result["allOf"] = [*result.get("allOf", ()), {"pattern": pattern}]
    else:
        result["pattern"] = pattern


def _one_of(tree: SchemaTree, node: SchemaNode, result: dict[str, Any]) -> None:
    """``anyOf`` in place of ``oneOf``: the same where the branches exclude each other."""
    if len(node.of("oneOf")) > MAX_BRANCHES:
        raise tree.refuse("oneOf", node, f"has {len(node.of('oneOf'))} branches, at most {MAX_BRANCHES} are compared")
    for one, other in combinations(node.of("oneOf"), 2):
        if not disjoint(tree, tree[one], tree[other]):
            why = f"has branches that could hold at once: {one} and {other}"
            hint = "use anyOf, or tell the branches apart by type or by a required property with const or enum"
            raise tree.refuse("oneOf", node, why, hint)
    branches = result.pop("oneOf")
    if "anyOf" in result:
        result["allOf"] = [*result.get("allOf", ()), {"anyOf": branches}]
    else:
        result["anyOf"] = branches


def _least_properties(_: SchemaTree, node: SchemaNode, result: dict[str, Any]) -> None:
    if node.get("minProperties") <= len(set(node.get("required", ()))):
        del result["minProperties"]


def _most_properties(_: SchemaTree, node: SchemaNode, result: dict[str, Any]) -> None:
    named = len({*node.get("properties", ()), *node.get("required", ())})
    closed = node.get("additionalProperties") is False and not node.get("patternProperties")
    if closed and node.get("maxProperties") >= named:
        del result["maxProperties"]


def _bound(keyword: str, inclusive: str, sign: int) -> Callable[[SchemaTree, SchemaNode, dict[str, Any]], None]:
    """An exclusive whole bound as an inclusive one just inside of it.

    The library takes 2 for a number above 2 and at most 2.5. The least step inside is lost, and nothing else is.
    """

    def rewrite(_: SchemaTree, node: SchemaNode, result: dict[str, Any]) -> None:
        bound = node.get(keyword)
        if result.get("type") == "integer" or bound != int(bound) or abs(bound) > MOST_FRACTIONAL:
            return
        inside = bound + sign * _STEP_INSIDE
        del result[keyword]
        result[inclusive] = sign * max(sign * inside, sign * result.get(inclusive, inside))

    return rewrite


_REWRITES: Final[Mapping[str, Callable[[SchemaTree, SchemaNode, dict[str, Any]], None]]] = {
    "pattern": _pattern,
    "format": _format,
    "patternProperties": _pattern_properties,
    "oneOf": _one_of,
    "exclusiveMinimum": _bound("exclusiveMinimum", "minimum", 1),
    "exclusiveMaximum": _bound("exclusiveMaximum", "maximum", -1),
    "minProperties": _least_properties,
    "maxProperties": _most_properties,
}

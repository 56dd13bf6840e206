"""What follows from a schema as a whole: which values end, what may not overlap, how far alternatives multiply."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final

from genai_pipeline.constraints.keywords import DEFINITIONS, SUPPORTED
from genai_pipeline.constraints.schema_tree import TYPES, SchemaNode, SchemaTree
from genai_pipeline.errors import ConstraintError

MAX_ALTERNATIVES: Final = 256  # that alternatives which must hold together may multiply to
_MAX_COUNT: Final = 1 << 20
_DISJOINT_DEPTH: Final = 4


def check_finite(tree: SchemaTree) -> None:
    """Refuse schemas that only values without an end would fit. Raises ConstraintError."""
    finite: set[str] = {node.pointer for node in tree if node.value is True}
    grew = True
    while grew:
        found = {node.pointer for node in tree if node.pointer not in finite and _ends(tree, node, finite)}
        finite |= found
        grew = bool(found)
    if tree[""].value is False:
        raise ConstraintError("the schema is false: no value fits", param=tree.param)
    for node in tree:
        if node.pointer not in finite and node.value is not False:
            keyword = next(
                (name for name in ("$ref", "required", "allOf", "anyOf", "oneOf") if node.get(name)), "items"
            )
            why = "allows no finite value: it leads back to itself, or demands what is false"
            hint = "make the property that leads back optional, or let it be null"
            raise tree.refuse(keyword, node, why, hint)


def _ends(tree: SchemaTree, node: SchemaNode, finite: set[str]) -> bool:
    """Whether some finite value may fit, given the schemas known to have one."""
    if node.value is False:
        return False
    if node.get("$ref") is not None and tree.target(node).pointer not in finite:
        return False
    if any(pointer not in finite for pointer in node.of("allOf")):
        return False
    if any(node.of(name) and not finite.intersection(node.of(name)) for name in ("anyOf", "oneOf")):
        return False
    allowed = types_of(tree, node)
    return (
        bool(allowed - {"object", "array"})
        or "enum" in _keywords(node)
        or "const" in _keywords(node)
        or ("object" in allowed and finite.issuperset(_demanded_properties(node)))
        or ("array" in allowed and finite.issuperset(_demanded_items(node)))
    )


def _demanded_properties(node: SchemaNode) -> Iterator[str]:
    properties = dict(zip(node.get("properties", {}), node.of("properties"), strict=True))
    for name in node.get("required", ()):
        yield from [properties[name]] if name in properties else node.of("additionalProperties")


def _demanded_items(node: SchemaNode) -> Iterator[str]:
    least = node.get("minItems", 0)
    places = node.of("prefixItems")
    yield from places[: int(least)]
    if least > len(places):
        yield from node.of("items")


def types_of(tree: SchemaTree, node: SchemaNode) -> frozenset[str]:
    """The types that values of a schema may have, as far as its own keywords and its reference say."""
    seen: set[str] = set()
    allowed = TYPES
    while True:
        allowed &= _own_types(node)
        if node.get("$ref") is None or node.pointer in seen:
            return allowed
        seen.add(node.pointer)
        node = tree.target(node)


def _own_types(node: SchemaNode) -> frozenset[str]:
    listed = _listed(node)
    if listed is not None:
        return frozenset(_type(value) for value in listed)
    declared = node.get("type")
    if declared is None:
        return TYPES if node.value is not False else frozenset()
    names = frozenset([declared] if isinstance(declared, str) else declared)
    return names | {"integer"} if "number" in names else names


def _type(value: Any) -> str:
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array", type(None): "null"}
    return kinds.get(type(value), "object")


def _listed(node: SchemaNode) -> list[Any] | None:
    """The values that a schema names, if it names all of them."""
    if "const" in _keywords(node):
        return [node.get("const")]
    listed: list[Any] | None = node.get("enum")
    return listed


def disjoint(tree: SchemaTree, one: SchemaNode, other: SchemaNode, depth: int = _DISJOINT_DEPTH) -> bool:
    """Whether it is certain that no value fits both: by type, by listed values, or by a property both demand."""
    if not types_of(tree, one) & types_of(tree, other):
        return True
    one, other = _resolved(tree, one), _resolved(tree, other)
    listed = [_listed(node) for node in (one, other)]
    if listed[0] is not None and listed[1] is not None:
        return not {_key(value) for value in listed[0]} & {_key(value) for value in listed[1]}
    if depth == 0 or not types_of(tree, one) == types_of(tree, other) == {"object"}:
        return False
    schemas = [dict(zip(node.get("properties", {}), node.of("properties"), strict=True)) for node in (one, other)]
    both = set(one.get("required", ())) & set(other.get("required", ())) & schemas[0].keys() & schemas[1].keys()
    return any(disjoint(tree, tree[schemas[0][name]], tree[schemas[1][name]], depth - 1) for name in both)


def _resolved(tree: SchemaTree, node: SchemaNode) -> SchemaNode:
    """The schema that a plain reference leads to, in the end."""
    seen: set[str] = set()
    while _keywords(node) == {"$ref"} and node.pointer not in seen:
        seen.add(node.pointer)
        node = tree.target(node)
    return node


def _key(value: Any) -> str:
    """Equal for values that JSON Schema takes as equal: 1 and 1.0 are, 1 and true are not."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {name: _whole(item) for name, item in value.items()} if isinstance(value, dict) else value


def check_alternatives(tree: SchemaTree) -> None:
    """Refuse alternatives under alternatives that must hold together, where they multiply. Raises ConstraintError."""
    counts: dict[str, int] = {}
    for node in tree:
        factors = _factors(tree, node, counts, ())
        if sum(factor > 1 for factor in factors) > 1 and prod(factors) > MAX_ALTERNATIVES:
            keyword = next(name for name in ("allOf", "anyOf", "oneOf", "$ref") if node.get(name) is not None)
            why = f"multiplies alternatives to {prod(factors)}, at most {MAX_ALTERNATIVES} are followed"
            raise tree.refuse(keyword, node, why, "write the combinations that are meant as one anyOf")


def _factors(tree: SchemaTree, node: SchemaNode, counts: dict[str, int], path: tuple[str, ...]) -> list[int]:
    """How many alternatives each thing brings that must hold together in a schema."""
    demanded = [tree[pointer] for pointer in node.of("allOf")]
    if node.get("$ref") is not None:
        demanded.append(tree.target(node))
    factors = [_count(tree, each, counts, path) for each in demanded]
    choices = [node.of(name) for name in ("anyOf", "oneOf") if node.of(name)]
    factors += [sum(_count(tree, tree[pointer], counts, path) for pointer in choice) for choice in choices]
    return factors


def _count(tree: SchemaTree, node: SchemaNode, counts: dict[str, int], path: tuple[str, ...]) -> int:
    if node.pointer in path:  # a schema that leads back to itself brings no new alternatives
        return 1
    if node.pointer not in counts:
        counts[node.pointer] = min(_MAX_COUNT, prod(_factors(tree, node, counts, (*path, node.pointer))))
    return counts[node.pointer]


def merged(tree: SchemaTree) -> frozenset[str]:
    """Pointers of schemas that hold together with others for the same value."""
    found: set[str] = set()
    waiting = [pointer for node in tree for pointer in _together(tree, node, False)]
    while waiting:
        pointer = waiting.pop()
        if pointer not in found:
            found.add(pointer)
            waiting += _together(tree, tree[pointer], True)
    return frozenset(found)


def _together(tree: SchemaTree, node: SchemaNode, inherited: bool) -> list[str]:
    """Schemas that apply to the same value as ``node``, if anything else does, too."""
    parts = [*node.of("allOf"), *node.of("anyOf"), *node.of("oneOf")]
    if node.get("$ref") is not None:
        parts.append(tree.target(node).pointer)
    combining = {"allOf", "anyOf", "oneOf", "$ref"}
    demands = _keywords(node)
    alone = len(demands & combining) == 1 and not demands - combining and len(node.of("allOf")) <= 1
    return parts if inherited or not alone else []


def _keywords(node: SchemaNode) -> frozenset[str]:
    """The keywords of a schema that say something about its values."""
    return SUPPORTED.intersection(node.value) - DEFINITIONS if isinstance(node.value, Mapping) else frozenset()

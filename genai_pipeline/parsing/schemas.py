"""What a tool's JSON Schema says about single arguments, for formats that do not write arguments as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_SHARED: Final = ("$defs", "definitions")  # what references of a property lead to


def property_schemas(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The schema of each declared argument, with the definitions that references in it lead to."""
    shared = {key: schema[key] for key in _SHARED if key in schema}
    declared = schema.get("properties")
    if not isinstance(declared, Mapping):
        return {}
    return {
        name: {**shared, **value} if isinstance(value, Mapping) else dict(shared) for name, value in declared.items()
    }


def required_names(schema: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that must be there."""
    required = schema.get("required")
    return frozenset(required) if isinstance(required, list) else frozenset()


def is_open(schema: Mapping[str, Any]) -> bool:
    """Whether arguments that the schema does not name are allowed."""
    return schema.get("additionalProperties", True) is not False


def types_of(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema allows, as far as it says; empty: any."""
    if depth > 16:
        return frozenset()
    if "$ref" in schema:
        target = followed(schema, root)
        return types_of(target, root, depth + 1) if target is not schema else frozenset()
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset((declared,))
    if isinstance(declared, list):
        return frozenset(map(str, declared))
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        return frozenset(type_name(value) for value in values)
    branches = list(_branches(schema, root, depth))
    return frozenset() if not branches or not all(branches) else frozenset().union(*branches)


def followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a schema's reference leads to; the schema itself where it has none, or where that leads nowhere."""
    reference = schema.get("$ref")
    target = _resolved(reference, root) if isinstance(reference, str) else None
    return schema if target is None else target


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "string"), (int, "integer"), (float, "number"), (list, "array"), (dict, "object"))
    return next((name for kind, name in names if isinstance(value, kind)), "null")


def _branches(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[frozenset[str]]:
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key)
        for branch in branches if isinstance(branches, list) else []:
            yield types_of(branch, root, depth + 1) if isinstance(branch, Mapping) else frozenset()


def _resolved(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a reference inside the schema leads to, None where it leads nowhere."""
    if not reference.startswith("#"):
        return None
    found: Any = root
    for part in reference[1:].split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None

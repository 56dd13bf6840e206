"""Turns what the schema refuses into problems a person can act on: where, what is wrong, what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.yaml_scalars import resolve
from genai_pipeline.problems import Location, Problems, nearest, one_of

SHOWN: Final = 40  # characters of a value in a message
MANY: Final = 3  # kinds of value; where more are allowed, listing them says little

_KINDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One refusal of the schema: the keyword, the path of the value, the subschema, what it asks, the value."""

    keyword: str
    path: tuple[str | int, ...]
    schema: Mapping[str, Any]
    expected: Any
    value: Any


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that its mapping does not take; ``allowed`` is empty where any name of the right form is."""

    path: tuple[str | int, ...]  # of the mapping
    field: str
    at: Location
    allowed: tuple[str, ...]
    missing: tuple[str, ...]  # allowed ones that are not there
    owner: str  # what the mapping is, "" when it has no title


def find(root: Node, path: Iterable[str | int]) -> Node:
    """The node at a path of the tree."""
    node = root
    for key in path:
        node = node.items[key] if isinstance(key, int) else node.mapping[key]
    return node


def unknown_fields(root: Node, faults: Iterable[Fault]) -> list[UnknownField]:
    """The unknown fields among the faults, each once."""
    found: dict[tuple[Any, ...], UnknownField] = {}
    for fault in faults:
        if fault.keyword != "additionalProperties":
            continue
        mapping = find(root, fault.path).mapping
        properties = fault.schema.get("properties", {})
        patterns = tuple(fault.schema.get("patternProperties", {}))
        takes_names = any(not pattern.startswith("^x-") for pattern in patterns)
        allowed = () if takes_names else tuple(properties)
        missing = tuple(name for name in allowed if name not in mapping)
        for name, node in mapping.items():
            if name in properties or any(re.search(pattern, name) for pattern in patterns):
                continue
            owner = str(fault.schema.get("title", ""))
            field = UnknownField(fault.path, name, node.named_at, allowed, missing, owner)
            found.setdefault((*fault.path, name), field)
    return list(found.values())


def report(root: Node, faults: Iterable[Fault], problems: Problems) -> None:
    """Record each fault once."""
    seen: set[tuple[Location, str, str]] = set()
    for fault in faults:
        node = find(root, fault.path)
        code, message, hint = _words(fault)
        at = _place(node, fault)
        if (at, code, message) not in seen:
            seen.add((at, code, message))
            problems.error(at, code, message, hint)


def _place(node: Node, fault: Fault) -> Location:
    """Where a fault is shown: at its value, or at a key: the last of those that exclude or need each other."""
    if fault.keyword not in _ABOUT_THE_MAPPING:
        return node.at
    given = [child.named_at for name, child in node.mapping.items() if name in _fields_of(fault)]
    return given[-1] if given else node.named_at


def _fields_of(fault: Fault) -> frozenset[str]:
    """Fields whose presence is the fault."""
    if fault.keyword in ("oneOf", "anyOf"):
        complete = (branch["required"] for branch in fault.expected if set(branch["required"]) <= set(fault.value))
        return frozenset(name for names in complete for name in names)
    if fault.keyword == "not":
        return frozenset(fault.expected["required"])
    return frozenset(fault.expected) if fault.keyword == "dependentRequired" else frozenset()


_ABOUT_THE_MAPPING: Final = frozenset({"required", "oneOf", "anyOf", "not", "dependentRequired", "minProperties"})


def _words(fault: Fault) -> tuple[str, str, str]:
    """Code, message and hint of a fault."""
    handler = _HANDLERS.get(fault.keyword)
    if handler is None:
        return "schema.invalid", f"breaks the rule '{fault.keyword}'", ""
    return handler(fault)


def shown(value: Any) -> str:
    """A value as a message shows it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= SHOWN else f"'{value[: SHOWN - 3]}...'"
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "a mapping"
    return str(value)


def _type(fault: Fault) -> tuple[str, str, str]:
    kinds = [fault.expected] if isinstance(fault.expected, str) else list(fault.expected)
    if fault.value is None and len(kinds) > MANY:
        return "schema.type", "must not be empty (null)", ""
    words = [_KINDS[kind] for kind in kinds]
    expected = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    return "schema.type", f"must be {expected}, not {shown(fault.value)}", _type_hint(kinds, fault.value)


def _type_hint(kinds: list[str], value: Any) -> str:
    if "boolean" in kinds and isinstance(value, str) and value.lower() in ("yes", "no", "on", "off", "y", "n"):
        return "booleans are written true and false"
    if "string" in kinds and isinstance(value, bool | int | float):
        return f'write it in quotes: "{shown(value)}"'
    if "number" in kinds or "integer" in kinds:
        return "write it without quotes" if isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+", value) else ""
    return ""


def _enum(fault: Fault) -> tuple[str, str, str]:
    allowed = [item if isinstance(item, str) else shown(item) for item in fault.expected]
    if fault.path == ("schema_version",):
        hint = 'write "1" in quotes' if fault.value == 1 else "a newer version of this program may read it"
        return "schema.version", f"version {shown(fault.value)} is not known; this reader knows '1'", hint
    hint = nearest(fault.value, allowed) if isinstance(fault.value, str) else ""
    return "schema.value", f"{shown(fault.value)} is not allowed; allowed: {one_of(allowed, 20)}", hint


def _required(fault: Fault) -> tuple[str, str, str]:
    missing = [name for name in fault.expected if name not in fault.value]
    # jsonschema gives one error per missing field with the whole list: the first report names all of them.
    names = ", ".join(f"'{name}'" for name in missing)
    what = "a required field is" if len(missing) == 1 else "required fields are"
    return "schema.required", f"{what} missing: {names}", _examples(fault, missing)


def _examples(fault: Fault, missing: list[str]) -> str:
    """A line to write, taken from the schema's own examples."""
    field = fault.schema.get("properties", {}).get(missing[0], {}) if missing else {}
    examples = field.get("examples") if isinstance(field, Mapping) else None
    example = examples[0] if examples else None
    if not isinstance(example, str | int | float):
        return ""
    quoted = isinstance(example, str) and not isinstance(resolve(example), str)
    return f'for example {missing[0]}: "{example}"' if quoted else f"for example {missing[0]}: {example}"


def _choice(fault: Fault) -> tuple[str, str, str]:
    """A choice between required fields."""
    groups = [" with ".join(branch["required"]) for branch in fault.expected]
    given = [
        group
        for group, branch in zip(groups, fault.expected, strict=True)
        if all(name in fault.value for name in branch["required"])
    ]
    names = ", ".join(groups[:-1]) + f" or {groups[-1]}"
    if given:
        return "schema.choice", f"only one of {names} may be given, not {' and '.join(given)}", ""
    word = "exactly one" if fault.keyword == "oneOf" else "at least one"
    return "schema.choice", f"{word} of {names} is needed", ""


def _not(fault: Fault) -> tuple[str, str, str]:
    return "schema.choice", f"only one of {' or '.join(fault.expected['required'])} may be given", ""


def _dependent(fault: Fault) -> tuple[str, str, str]:
    for name, needed in fault.expected.items():
        missing = [other for other in needed if other not in fault.value]
        if name in fault.value and missing:
            return "schema.required", f"'{name}' needs '{missing[0]}' beside it", ""
    return "schema.required", "a field is missing", ""


def _pattern(fault: Fault) -> tuple[str, str, str]:
    rule = fault.schema.get("patternErrorMessage", f"it must match {fault.expected}")
    return "schema.name", f"{shown(fault.value)} is not allowed here: {rule}", ""


def _bound(word: str) -> Callable[[Fault], tuple[str, str, str]]:
    def words(fault: Fault) -> tuple[str, str, str]:
        if isinstance(fault.value, float) and not math.isfinite(fault.value):
            return "schema.range", "must be a finite number", ""
        return "schema.range", f"must be {word} {fault.expected:g}, not {fault.value:g}", ""

    return words


def _too_few(fault: Fault) -> tuple[str, str, str]:
    if fault.expected == 1:
        return "schema.empty", "must not be empty", ""
    return "schema.count", f"needs at least {fault.expected} entries, not {len(fault.value)}", ""


def _too_many(fault: Fault) -> tuple[str, str, str]:
    return "schema.count", f"takes at most {fault.expected}, not {len(fault.value)}", ""


def _duplicate(fault: Fault) -> tuple[str, str, str]:
    return "schema.duplicate", "occurs twice in the list", "remove one of the two"


_HANDLERS: Final[Mapping[str, Callable[[Fault], tuple[str, str, str]]]] = {
    "type": _type,
    "enum": _enum,
    "required": _required,
    "oneOf": _choice,
    "anyOf": _choice,
    "not": _not,
    "dependentRequired": _dependent,
    "pattern": _pattern,
    "minimum": _bound("at least"),
    "exclusiveMinimum": _bound("above"),
    "maximum": _bound("at most"),
    "exclusiveMaximum": _bound("below"),
    "minItems": _too_few,
    "minProperties": _too_few,
    "minLength": _too_few,
    "maxItems": _too_many,
    "maxProperties": _too_many,
    "uniqueItems": _duplicate,
}

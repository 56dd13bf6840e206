"""A JSON Schema as a bounded table of its subschemas by JSON pointer, with every keyword and reference checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from genai_pipeline.constraints.keywords import (
    LISTS,
    MAPS,
    NO_DEMAND,
    SINGLE,
    SUPPORTED,
    describes,
    refuse_keyword,
)
from genai_pipeline.errors import ConstraintError
from genai_pipeline.metadata.schema import DRAFTS, metaschema_fault
from genai_pipeline.problems import nearest, one_of, shown

MAX_CHARACTERS: Final = 262_144  # of a schema as JSON
MAX_SCHEMAS: Final = 4096  # subschemas of a schema
MAX_DEPTH: Final = 48  # brackets around a value of a schema; the grammar library reads 128, and we add some
NEWEST: Final = DRAFTS[0]
TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


@dataclass(frozen=True, slots=True)
class SchemaNode:
    """One subschema: where it is, what it says, and the pointers of the schemas right in it by keyword."""

    pointer: str  # "" is the whole schema
    value: Mapping[str, Any] | bool
    children: Mapping[str, tuple[str, ...]]

    def get(self, keyword: str, default: Any = None) -> Any:
        """The value of a keyword; a schema that is true or false has none."""
        return default if isinstance(self.value, bool) else self.value.get(keyword, default)

    def of(self, keyword: str) -> tuple[str, ...]:
        """Pointers of the schemas that a keyword holds."""
        return self.children.get(keyword, ())


class SchemaTree:
    """All subschemas of one schema. Making it raises ConstraintError for everything that cannot be enforced by name."""

    def __init__(self, schema: Any, param: str) -> None:
        self.param = param
        self._check_size(schema)
        draft = self._draft(schema)
        self.nodes: dict[str, SchemaNode] = {}
        self._collect(schema)
        self._check_valid(schema, draft)
        for node in self:
            if "$ref" in (node.value if isinstance(node.value, Mapping) else ()):
                self.target(node)

    def __iter__(self) -> Iterator[SchemaNode]:
        return iter(self.nodes.values())

    def __getitem__(self, pointer: str) -> SchemaNode:
        return self.nodes[pointer]

    def refuse(self, keyword: str, node: SchemaNode, why: str, hint: str = "") -> ConstraintError:
        """The error for a keyword of a subschema whose value cannot be used."""
        at = f"{node.pointer}/{escaped(keyword)}"
        message = f"the schema keyword '{keyword}' at {at} {why}"
        return ConstraintError(message, param=self.param, keyword=keyword, pointer=at, hint=hint)

    def target(self, node: SchemaNode) -> SchemaNode:
        """What the ``$ref`` of a node refers to. Raises ConstraintError."""
        reference = node.get("$ref")
        if reference != "#" and not reference.startswith("#/"):
            why = f"refers to {shown(reference)}, outside of this schema"
            raise self.refuse("$ref", node, why, "copy the schema under $defs and refer to it by #/$defs/name")
        pointer = unquote(reference[1:])
        found = self.nodes.get(pointer)
        if found is None:
            hint = nearest(pointer, self.nodes) or f"schemas are at: {one_of(f'#{name}' for name in self.nodes)}"
            raise self.refuse("$ref", node, f"refers to {shown(reference)}, where there is no schema", hint)
        return found

    def _check_size(self, schema: Any) -> None:
        try:
            text = json.dumps(schema, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise self._unusable(f"the schema is no JSON: {_reason(error)}") from error
        for key in _keys(schema):
            if not isinstance(key, str):
                raise self._unusable(f"the schema is no JSON: the key {shown(key)} is no text", "write it in quotes")
        if len(text) > MAX_CHARACTERS:
            raise self._unusable(f"the schema has {len(text)} characters, at most {MAX_CHARACTERS} are read")
        if _depth(text) > MAX_DEPTH:
            hint = "give inner schemas a name under $defs and refer to them"
            raise self._unusable(f"the schema nests deeper than {MAX_DEPTH} levels", hint)

    def _draft(self, schema: Any) -> str:
        draft = str(schema.get("$schema", NEWEST)).rstrip("#") if isinstance(schema, Mapping) else NEWEST
        if draft not in DRAFTS:
            hint = nearest(draft, DRAFTS) or f"drafts are: {one_of(DRAFTS)}"
            raise ConstraintError(
                f"the schema keyword '$schema' at /$schema names {shown(draft)}, which is not supported",
                param=self.param,
                keyword="$schema",
                pointer="/$schema",
                hint=hint,
            )
        return draft

    def _check_valid(self, schema: Any, draft: str) -> None:
        fault = metaschema_fault(schema, draft)
        if fault is not None:
            keyword = fault.path[-1] if fault.path else ""
            pointer = "".join(f"/{escaped(part)}" for part in fault.path)
            message = f"the schema is not valid at {pointer or 'its top'}: {fault.message}"
            hint = f"types are: {one_of(TYPES)}" if keyword == "type" else ""
            raise ConstraintError(message, param=self.param, keyword=str(keyword), pointer=pointer, hint=hint)

    def _unusable(self, message: str, hint: str = "") -> ConstraintError:
        return ConstraintError(message, param=self.param, hint=hint)

    def _collect(self, schema: Any) -> None:
        waiting: list[tuple[str, Any]] = [("", schema)]
        while waiting:
            pointer, value = waiting.pop()
            children: dict[str, tuple[str, ...]] = {}
            for keyword, item in value.items() if isinstance(value, Mapping) else ():
                self._check_keyword(keyword, item, pointer)
                inner = list(_inner(keyword, item, f"{pointer}/{escaped(keyword)}"))
                children[keyword] = tuple(place for place, _ in inner)
                waiting += reversed(inner)
            self.nodes[pointer] = SchemaNode(pointer, value, children)
            if len(self.nodes) > MAX_SCHEMAS:
                raise self._unusable(f"the schema has more than {MAX_SCHEMAS} subschemas")

    def _check_keyword(self, keyword: str, value: Any, pointer: str) -> None:
        if keyword == "items" and isinstance(value, list):
            here = SchemaNode(pointer, True, {})
            raise self.refuse(
                "items", here, "is a list, which is not supported", "use prefixItems, and items for the rest"
            )
        if keyword in SUPPORTED or describes(keyword):
            return
        if pointer == "" and keyword in ("$schema", "$id"):
            return
        if keyword in NO_DEMAND and value is NO_DEMAND[keyword]:
            return
        raise refuse_keyword(keyword, f"{pointer}/{escaped(keyword)}", self.param)


def escaped(part: str | int) -> str:
    """One step of a JSON pointer (RFC 6901)."""
    return str(part).replace("~", "~0").replace("/", "~1")


def _inner(keyword: str, value: Any, pointer: str) -> Iterator[tuple[str, Any]]:
    """Pointers and schemas right below a keyword; none where the value is not of the keyword's kind."""
    if keyword in SINGLE:
        yield pointer, value
    elif keyword in MAPS and isinstance(value, Mapping):
        yield from ((f"{pointer}/{escaped(name)}", schema) for name, schema in value.items())
    elif keyword in LISTS and isinstance(value, list):
        yield from ((f"{pointer}/{index}", schema) for index, schema in enumerate(value))


def _keys(value: Any) -> Iterator[Any]:
    """The keys of all objects in a value."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            yield from item
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)


def _depth(text: str) -> int:
    """How deep the brackets of a JSON text nest."""
    deepest = depth = 0
    in_string = skip = False
    for character in text:
        if skip:
            skip = False
        elif in_string:
            skip, in_string = character == "\\", character != '"'
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _reason(error: Exception) -> str:
    return "it nests without end" if isinstance(error, RecursionError) else str(error)

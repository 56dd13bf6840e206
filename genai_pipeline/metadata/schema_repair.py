"""Copies of a faulty tree that are fit to look at again: unknown fields put right, faulty parts left out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.metadata.schema_faults import Fault, UnknownField, shown
from genai_pipeline.problems import Problems, nearest, one_of

MAX_STAGE_DEPTH: Final = 16
SURE: Final = 0.8  # likeness from which an unknown field is taken for the one it resembles
MAX_MATCHED: Final = 100  # unknown fields that are compared with the known ones, which costs time

Path = tuple[str | int, ...]

_MERGE_HINT: Final = "merge keys belong to YAML 1.1; write the fields out, or use an alias for a whole value"


class Repair:
    """Reports unknown fields, and renames or removes them in a new tree."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._changes: dict[Path, dict[str, str | None]] = {}  # mapping -> field -> new name, None: remove
        self._touched: set[Path] = set()  # the changed mappings and all above them
        self._matched = 0
        self.lossless = True  # whether nothing that has a place in the grammar was left out

    def apply(self, root: Node, fields: Iterable[UnknownField]) -> Node:
        """The tree without these fields, each of which is reported; unchanged parts are shared."""
        self._changes = {}
        for field in fields:
            self._take(field)
        self._touched = {path[:length] for path in self._changes for length in range(len(path) + 1)}
        return self._apply(root, ())

    def _take(self, field: UnknownField) -> None:
        """Report one unknown field and decide what becomes of it."""
        changes = self._changes.setdefault(field.path, {})
        taken = {name for name in changes.values() if name is not None}
        changes[field.field] = self._meant(field, taken)
        if not field.allowed:
            self.lossless = False
            message = f"{shown(field.field)} is not a name"
            hint = "a name has letters, digits and underscores, and does not start with a digit"
            self._problems.error(field.at, "schema.name", message, hint)
            return
        owner = f" of {_article(field.owner)}" if field.owner else ""
        message = f"unknown field {shown(field.field)}{owner}"
        self._problems.error(field.at, "schema.unknown_field", message, self._hint(field))

    def _meant(self, field: UnknownField, taken: set[str]) -> str | None:
        self._matched += 1
        if self._matched > MAX_MATCHED:
            return None
        free = [name for name in field.missing if name not in taken]
        matches = difflib.get_close_matches(field.field, free, n=1, cutoff=SURE)
        matches += [name for name in free if _one_letter_off(field.field, name)]
        return matches[0] if matches else None

    def _hint(self, field: UnknownField) -> str:
        if field.field == "<<":
            return _MERGE_HINT
        close = nearest(field.field, field.allowed) if self._matched <= MAX_MATCHED else ""
        return close or f"fields: {one_of(field.allowed, 40)}"

    def _apply(self, node: Node, path: Path) -> Node:
        if path not in self._touched:
            return node
        if isinstance(node.value, tuple):
            return replace(node, value=tuple(self._apply(item, (*path, i)) for i, item in enumerate(node.value)))
        changes = self._changes.get(path, {})
        entries: dict[str, Node] = {}
        for key, child in node.mapping.items():
            name = changes.get(key, key)
            if name is not None:
                entries[name] = self._apply(child, (*path, key))
        return replace(node, value=entries) if isinstance(node.value, dict) else node


def _one_letter_off(word: str, other: str) -> bool:
    """Whether two words of three or more letters differ in one, as rum and run do, which are not alike otherwise."""
    return len(word) == len(other) >= 3 and sum(a != b for a, b in zip(word, other, strict=True)) == 1


def _article(title: str) -> str:
    lowered = title[0].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title
    if lowered.endswith(("s", "data")):
        return lowered
    return f"{'an' if lowered[0] in 'aeiou' else 'a'} {lowered}"


def prune(root: Node, faults: Iterable[Fault]) -> Node:
    """The tree without the faulty values."""
    return _prune(root, (), {fault.path for fault in faults})


def _prune(node: Node, path: Path, faulty: set[Path]) -> Node:
    if isinstance(node.value, tuple):
        items = enumerate(node.value)
        kept = tuple(_prune(item, (*path, i), faulty) for i, item in items if (*path, i) not in faulty)
        return replace(node, value=kept)
    if isinstance(node.value, dict):
        entries = node.value.items()
        left = {key: _prune(child, (*path, key), faulty) for key, child in entries if (*path, key) not in faulty}
        return replace(node, value=left)
    return node


def nested_too_deep(root: Node) -> Node | None:
    """The first stage that lies deeper than stages may nest, or None."""
    pending = [(stage, 1) for stage in _stages(root, "stages")]
    while pending:
        stage, depth = pending.pop()
        if depth > MAX_STAGE_DEPTH:
            return stage
        pending.extend((inner, depth + 1) for inner in _stages(stage, "body"))
    return None


def _stages(node: Node, key: str) -> tuple[Node, ...]:
    stages = node.get(key)
    return stages.items if stages is not None else ()

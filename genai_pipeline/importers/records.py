"""Reads small closed records from YAML nodes, collecting every problem instead of stopping at the first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from genai_pipeline.metadata.nodes import Node
from genai_pipeline.problems import Problems, nearest, one_of


class RecordReader:
    """One mapping with a closed set of fields; a field at fault is recorded and read as an empty value."""

    def __init__(self, node: Node, problems: Problems, fields: Sequence[str], optional: Sequence[str] = ()) -> None:
        self._node = node
        self._problems = problems
        known = (*fields, *optional)
        if not isinstance(node.value, dict):
            problems.error(node.at, "recipe.type", "must be a mapping" + (f" with {one_of(known)}" if known else ""))
            return
        for key, child in node.mapping.items():
            if key not in known:
                hint = nearest(key, known) or f"fields: {one_of(known)}"
                problems.error(child.named_at, "recipe.unknown_field", f"unknown field '{key}'", hint)
        for key in fields:
            if key not in node.mapping:
                problems.error(node.at, "recipe.missing_field", f"the field '{key}' is missing")

    def text(self, key: str, pattern: re.Pattern[str] | None = None) -> str:
        """A string, which ``pattern`` matches as a whole."""
        node = self._node.get(key)
        if node is None:
            return ""
        if not isinstance(node.value, str) or not node.value:
            self._wrong(node, key, "must be a string that is not empty")
            return ""
        if pattern is not None and not pattern.fullmatch(node.value):
            self._wrong(node, key, f"has a form that is not allowed: '{node.value}'")
        return node.value

    def positive(self, key: str) -> int:
        """An integer above zero."""
        node = self._node.get(key)
        if node is None:
            return 0
        if isinstance(node.value, bool) or not isinstance(node.value, int) or node.value <= 0:
            self._wrong(node, key, "must be an integer above 0")
            return 0
        return node.value

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of the allowed strings."""
        value = self.text(key)
        node = self._node.get(key)
        if node is not None and value and value not in allowed:
            self._wrong(node, key, f"is '{value}'; allowed: {one_of(allowed)}", nearest(value, allowed))
        return value

    def items(self, key: str) -> tuple[Node, ...]:
        """The items of a list that is not empty."""
        node = self._node.get(key)
        if node is not None and not node.items:
            self._wrong(node, key, "must be a list that is not empty")
        return () if node is None else node.items

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of a list that is not empty; numbers and the like are read as they are written."""
        return tuple(str(node.value) for node in self.items(key))

    def lists(self, key: str, form: re.Pattern[str]) -> dict[str, tuple[str, ...]]:
        """A mapping to lists, which may be empty, of strings that ``form`` matches as a whole, if it is there."""
        node = self._node.get(key)
        if node is None:
            return {}
        RecordReader(node, self._problems, tuple(node.mapping))
        for child in node.mapping.values():
            for item in child.items if isinstance(child.value, tuple) else (child,):
                if not form.fullmatch(str(item.value)):
                    self._wrong(item, key, "has lists of names only")
        return {name: tuple(str(item.value) for item in child.items) for name, child in node.mapping.items()}

    def choices(self, key: str, names: re.Pattern[str], allowed: Sequence[str]) -> dict[str, str]:
        """A mapping from names of a form to allowed strings."""
        node = self._node.get(key)
        if node is None:
            return {}
        for name, child in node.mapping.items():
            if not names.fullmatch(name):
                self._problems.error(child.named_at, "recipe.value", f"'{name}' has a form that is not allowed")
        entries = RecordReader(node, self._problems, tuple(node.mapping))
        return {name: entries.choice(name, allowed) for name in node.mapping}

    def record(self, key: str, fields: Sequence[str], optional: Sequence[str] = ()) -> RecordReader:
        """A mapping inside this one; an absent one was reported already and reads as empty values."""
        node = self._node.get(key)
        if node is None:
            return RecordReader(Node({}, self._node.at), Problems(), ())
        return RecordReader(node, self._problems, fields, optional)

    def records(self, key: str, fields: Sequence[str], optional: Sequence[str] = ()) -> tuple[RecordReader, ...]:
        """The mappings of a list that is not empty, if the field is there."""
        return tuple(RecordReader(node, self._problems, fields, optional) for node in self.items(key))

    def numbers(self, key: str, allowed: Sequence[str]) -> dict[str, dict[str, int]]:
        """A mapping from some of the allowed names to mappings from names to integers above 0, if it is there."""
        node = self._node.get(key)
        if node is None:
            return {}
        RecordReader(node, self._problems, (), allowed)
        inner = {
            name: RecordReader(child, self._problems, tuple(child.mapping)) for name, child in node.mapping.items()
        }
        return {
            name: {each: inner[name].positive(each) for each in child.mapping} for name, child in node.mapping.items()
        }

    def _wrong(self, node: Node, key: str, message: str, hint: str = "") -> None:
        self._problems.error(node.at, "recipe.value", f"{key} {message}", hint)

"""Builds the node tree from a reader's events, with every bound checked before its cost is paid.

The builder works with a stack of open collections instead of recursion. What it must refuse (a duplicate key, a key
that is no string) is still walked through, but lands nowhere, so that reading goes on and finds the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from genai_pipeline.metadata.nodes import Node, child_path
from genai_pipeline.metadata.yaml_scalars import NumberTooLargeError, Scalar, resolve
from genai_pipeline.problems import Location, Problems

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000  # with aliases expanded
MAX_ALIASES: Final = 100
MAX_KEY: Final = 256  # characters
MAX_PATH: Final = 2048  # characters
SHOWN: Final = 40  # characters of a key in a message


_SURROGATE = re.compile("[\ud800-\udfff]")


class StopReadingError(Exception):
    """Reading cannot go on; the problem is already recorded. Never leaves the reader."""


@dataclass(slots=True)
class _Key:
    """A mapping key that waits for its value; ``name`` None: the entry is thrown away."""

    name: str | None
    at: Location


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    is_mapping: bool
    at: Location
    key_at: Location | None
    anchor: str | None
    entries: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)
    key: _Key | None = None
    height: int = 1
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    height: int
    nodes: int


class TreeBuilder:
    """Takes events in document order; ``root`` is the finished tree."""

    def __init__(self, file: str, problems: Problems) -> None:
        self.root: Node | None = None
        self.complete = False
        self._file = file
        self._problems = problems
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}  # None: still open
        self._nodes = 0
        self._aliases = 0

    def document(self, line: int, column: int, version: tuple[int, int] | None) -> None:
        """A document starts; only one may, and only as YAML 1.2."""
        at = Location(self._file, line, column)
        if self.root is not None:
            raise self._stop(at, "yaml.documents", "a second document starts here", "one file holds one document")
        if version is not None and tuple(version) != (1, 2):
            shown = ".".join(map(str, version))
            self._problems.error(at, "yaml.version", f"YAML {shown} is not read", "metadata is YAML 1.2")

    def scalar(self, line: int, column: int, text: str, *, plain: bool, anchor: str | None, tag: str | None) -> None:
        """A scalar: a key when the open mapping waits for one, else a value."""
        at = self._place(line, column)
        self._check_tag(at, tag)
        value = self._resolve(text, at) if plain else text
        if isinstance(value, str) and _SURROGATE.search(value):
            value = text = self._joined(value, at)
        if self._wants_key():
            self._set_key(value, text, at)
            self._remember(anchor, Node(value, at), 1, 1)
            return
        self._count(at, 1)
        node = Node(value, at, self._key_place(at))
        self._remember(anchor, node, 1, 1)
        self._add(node, 1, 1)

    def open(self, line: int, column: int, *, is_mapping: bool, anchor: str | None, tag: str | None) -> None:
        """A mapping or a sequence starts."""
        at = self._place(line, column)
        self._check_tag(at, tag)
        if len(self._stack) >= MAX_DEPTH:
            raise self._stop(at, "yaml.depth", f"nested deeper than {MAX_DEPTH} levels")
        if self._wants_key():
            message = "a mapping key must be text, not a list or a mapping"
            self._problems.error(at, "yaml.key_type", message, "write a short name as the key")
            self._stack.append(_Open(is_mapping, at, None, anchor))
            return
        self._count(at, 1)
        if anchor is not None:
            self._anchors[anchor] = None
        self._stack.append(_Open(is_mapping, at, self._key_place(at), anchor))

    def close(self) -> None:
        """The innermost collection ends."""
        frame = self._stack.pop()
        node = Node(frame.entries if frame.is_mapping else tuple(frame.items), frame.at, frame.key_at)
        self._remember(frame.anchor, node, frame.height, frame.nodes)
        if self._wants_key():  # it stood where a key should: its value follows and is thrown away
            self._stack[-1].key = _Key(None, frame.at)
            return
        self._add(node, frame.height, frame.nodes)

    def alias(self, line: int, column: int, name: str) -> None:
        """An alias: a copy of the anchored node, with paths of its own and the lines of the original."""
        at = self._place(line, column)
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise self._stop(at, "yaml.aliases", f"more than {MAX_ALIASES} aliases")
        if name not in self._anchors:
            raise self._stop(at, "yaml.alias", f"no anchor '{_shown(name)}' before this alias")
        anchored = self._anchors[name]
        if anchored is None:
            raise self._stop(at, "yaml.alias", f"the alias '{_shown(name)}' stands inside its own anchor")
        if self._wants_key():
            value = anchored.node.value
            if isinstance(value, dict | tuple):
                self._problems.error(at, "yaml.key_type", "a mapping key must be text, not a list or a mapping")
                self._stack[-1].key = _Key(None, at)
            else:
                self._set_key(value, str(value), at)
            return
        if len(self._stack) + anchored.height > MAX_DEPTH + 1:
            raise self._stop(at, "yaml.depth", f"nested deeper than {MAX_DEPTH} levels")
        self._count(at, anchored.nodes)
        copied = self._copy(anchored.node, at.path, self._key_place(at))
        self._add(copied, anchored.height, anchored.nodes)

    def _wants_key(self) -> bool:
        return bool(self._stack) and self._stack[-1].is_mapping and self._stack[-1].key is None

    def _resolve(self, text: str, at: Location) -> Scalar:
        try:
            return resolve(text)
        except NumberTooLargeError:
            message = "the number is too large"
            self._problems.error(at, "yaml.number", message, "put it in quotes if it is text")
            return 1

    def _joined(self, text: str, at: Location) -> str:
        """Text whose escapes give surrogates, as JSON writes characters beyond 16 bits, with each pair joined."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._problems.error(at, "yaml.character", "an escape gives half of a surrogate pair, which is no text")
            return ""

    def _set_key(self, value: Scalar, text: str, at: Location) -> None:
        """The key of the next entry, or a problem and a key whose entry is thrown away."""
        frame = self._stack[-1]
        name: str | None = None
        shown = _shown(text)
        if not isinstance(value, str):
            message = f"a mapping key must be text, not {'null' if value is None else shown}"
            self._problems.error(at, "yaml.key_type", message, f"write it in quotes: '{shown}'")
        elif len(value) > MAX_KEY:
            self._problems.error(at, "yaml.key_length", f"a key has more than {MAX_KEY} characters")
        elif value in frame.entries:
            first = frame.entries[value].named_at.line
            message = f"key '{shown}' is already set on line {first}"
            here = replace(at, path=child_path(frame.at.path, value))
            self._problems.error(here, "yaml.duplicate_key", message, "remove one of the two")
        else:
            name = value
            if len(child_path(frame.at.path, value)) > MAX_PATH:
                raise self._stop(at, "yaml.key_length", f"the keys down to here have over {MAX_PATH} characters")
        frame.key = _Key(name, at)

    def _place(self, line: int, column: int) -> Location:
        """The place of what comes next: for a key the path is that of its mapping, else that of the entry it begins."""
        if not self._stack:
            return Location(self._file, line, column)
        frame = self._stack[-1]
        if not frame.is_mapping:
            return Location(self._file, line, column, child_path(frame.at.path, len(frame.items)))
        name = frame.key.name if frame.key is not None else None
        path = frame.at.path if name is None else child_path(frame.at.path, name)
        return Location(self._file, line, column, path)

    def _key_place(self, at: Location) -> Location | None:
        """The place of the key whose value is about to be added."""
        key = self._stack[-1].key if self._stack else None
        return None if key is None else replace(key.at, path=at.path)

    def _add(self, node: Node, height: int, nodes: int) -> None:
        """Put a finished node where it belongs."""
        if not self._stack:
            self.root, self.complete = node, True
            return
        frame = self._stack[-1]
        frame.height = max(frame.height, height + 1)
        frame.nodes += nodes
        if not frame.is_mapping:
            frame.items.append(node)
            return
        assert frame.key is not None
        if frame.key.name is not None:
            frame.entries[frame.key.name] = node
        frame.key = None

    def _remember(self, anchor: str | None, node: Node, height: int, nodes: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = _Anchored(node, height, nodes)

    def _count(self, at: Location, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise self._stop(at, "yaml.nodes", f"more than {MAX_NODES} values, aliases expanded")

    def _check_tag(self, at: Location, tag: str | None) -> None:
        if tag is not None:
            shown = _shown(tag.replace("tag:yaml.org,2002:", "!!"))
            self._problems.error(at, "yaml.tag", f"the tag {shown} is not allowed", "types follow from the value")

    def _copy(self, node: Node, path: str, key_at: Location | None) -> Node:
        """A node under a new path; recursion is bounded by MAX_DEPTH."""
        if len(path) > MAX_PATH:
            raise self._stop(node.at, "yaml.key_length", f"the keys down to here have over {MAX_PATH} characters")
        value: Scalar | tuple[Node, ...] | dict[str, Node]
        if isinstance(node.value, dict):
            value = {key: self._copy_entry(child, child_path(path, key)) for key, child in node.value.items()}
        elif isinstance(node.value, tuple):
            value = tuple(self._copy(child, child_path(path, i), None) for i, child in enumerate(node.value))
        else:
            value = node.value
        return Node(value, replace(node.at, path=path), key_at)

    def _copy_entry(self, node: Node, path: str) -> Node:
        return self._copy(node, path, replace(node.named_at, path=path))

    def _stop(self, at: Location, code: str, message: str, hint: str = "") -> StopReadingError:
        self._problems.error(at, code, message, hint)
        return StopReadingError()


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."

"""The tree that the YAML reader gives: plain values in which every node knows where it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from genai_pipeline.metadata.yaml_scalars import Scalar
from genai_pipeline.problems import Location

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a sequence or a mapping, with the place of the value and, inside a mapping, that of its key."""

    value: Scalar | tuple[Node, ...] | dict[str, Node]
    at: Location
    key_at: Location | None = None

    @property
    def mapping(self) -> dict[str, Node]:
        """The entries of a mapping; nothing for other nodes."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> tuple[Node, ...]:
        """The items of a sequence; nothing for other nodes."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def named_at(self) -> Location:
        """The place of the key where there is one: what a problem about the entry as a whole points to."""
        return self.key_at or self.at

    def get(self, key: str) -> Node | None:
        """The entry of a mapping, or None."""
        return self.mapping.get(key)

    def plain(self) -> Any:
        """The value as dicts, lists and scalars, without places."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return [child.plain() for child in self.value]
        return self.value

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.items or tuple(node.mapping.values())))


def child_path(parent: str, key: str | int) -> str:
    """The YAML path of an entry, e.g. ``stages[0].inputs.input_ids`` or ``inputs["present.0.key"]``."""
    if isinstance(key, int):
        return f"{parent}[{key}]"
    if not _PLAIN_KEY.fullmatch(key):
        quoted = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'{parent}["{quoted}"]'
    return f"{parent}.{key}" if parent else key

"""The text of an inference metadata file: short lines, mappings that fit a line on one line, comments at the top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from genai_pipeline.importers.package_writer import WIDTH, flow, wrapped


def document(comment: str, fields: Mapping[str, Any]) -> str:
    """The whole file: a comment, then the fields in their order; empty ones are left out."""
    lines = [f"# {comment}", 'schema_version: "1"']
    for key, value in fields.items():
        if value not in ({}, [], None, ""):
            lines += _field(key, value, "")
    return "\n".join([*lines, ""])


def _field(key: str, value: Any, indent: str) -> Iterator[str]:
    """``key: value`` on one line where it fits, else as a block."""
    short = f"{indent}{key}: {flow(value)}"
    scalar = not isinstance(value, dict | list)
    if scalar or (len(short) <= WIDTH and indent and not _deep(value)) or _flat(value, short):
        yield short
        return
    yield f"{indent}{key}:"
    yield from _block(value, f"{indent}  ")


def _block(value: dict[str, Any] | list[Any], indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _field(key, item, indent)
        return
    if all(not isinstance(item, dict | list) for item in value):
        yield from wrapped(value, indent)
        return
    for item in value:
        short = f"{indent}- {flow(item)}"
        if not isinstance(item, dict | list) or (len(short) <= WIDTH and not _deep(item)):
            yield short
            continue
        first, *rest = _block(item, f"{indent}  ")
        yield f"{indent}- {first.lstrip()}"
        yield from rest


def _deep(value: Any) -> bool:
    """Whether a value holds stages or states, which are read better one below the other."""
    return isinstance(value, dict) and any(key in value for key in ("body", "loop", "kv"))


def _flat(value: Any, short: str) -> bool:
    """Whether a top-level value may stay on the line of its key."""
    inner = value.values() if isinstance(value, dict) else value
    return len(short) <= WIDTH and not any(isinstance(item, dict) for item in inner)

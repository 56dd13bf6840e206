"""Items of inputs and the values they become: one dict of fields for each text, image, sound or tensor of a request.

A single input publishes its item under its own name and each field as ``name.field``; an input that takes a list
publishes the list of items, and each field as the list of what each item has. What is absent is None, of a list the
empty list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from genai_pipeline.errors import RequestError
from genai_pipeline.metadata.model import InputSpec

Item = dict[str, Any]

DIGEST: Final = "digest"  # the key of an item's digest, bytes
DIGEST_BYTES: Final = 16


def with_digest(fields: Mapping[str, Any]) -> Item:
    """An item with its digest, and with those of items inside it (windows of a sound)."""
    item = {name: _inner(value) for name, value in fields.items()}
    return {**item, DIGEST: item_digest(item)}


def item_digest(fields: Mapping[str, Any]) -> bytes:
    """Equal for items with the same fields: 16 bytes of blake2b over names, types, shapes and contents."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"item")
    for part in _parts(fields):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def publish(spec: InputSpec, items: Sequence[Item], fields: Iterable[str], *, many: bool) -> dict[str, Any]:
    """The values of an input, by value key; ``fields`` are there even if no item has them."""
    names = dict.fromkeys([*fields, *(name for item in items for name in item)])
    if many:
        listed = {f"{spec.name}.{name}": [item.get(name) for item in items] for name in names}
        return {spec.name: list(items), **listed}
    item = items[0] if items else None
    single = {f"{spec.name}.{name}": None if item is None else item.get(name) for name in names}
    return {spec.name: item, **single}


def check_count(spec: InputSpec, count: int, *, many: bool) -> None:
    """Refuse too many or too few items of an input that was given. Raises RequestError."""
    name, most = spec.name, spec.max_items if many else 1
    if most is not None and count > most:
        takes = f"at most {most} items" if many else "one item"
        raise RequestError(f"{name} takes {takes}, not {count}", param=name)
    fewest = (spec.min_items or 0) if many else 1
    if count < fewest:
        needs = f"at least {fewest} items" if many else "one item"
        raise RequestError(f"{name} takes {needs}, not {count}", param=name)


def _inner(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return [with_digest(item) for item in value]
    return value


def _parts(value: Any) -> Iterable[bytes | memoryview]:
    """What a value consists of, as bytes that tell apart what is different."""
    if isinstance(value, Mapping):
        yield f"mapping {len(value)}".encode()
        for name in sorted(value, key=str):
            yield str(name).encode()
            yield from [value[name]] if name == DIGEST else _parts(value[name])
    elif isinstance(value, list | tuple):
        yield f"list {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, np.ndarray | np.generic) and value.dtype != object:
        array = np.ascontiguousarray(value)
        yield f"array {array.dtype.str} {np.shape(value)}".encode()
        yield array.reshape(-1).view(np.uint8).data if array.dtype.kind not in "U" else array.tobytes()
    else:
        yield f"{type(value).__name__} {value!r}".encode()

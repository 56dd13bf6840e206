"""JSON between clients and server: text of bounded size and depth in, text out, never long on the event loop.

Reading happens in one call of the standard library that nothing can interrupt, so what may take long is bounded before:
bytes, depth of nesting, and the number of values. Writing is done in slices between which others run.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from functools import partial
from typing import Any, Final, NoReturn

from genai_pipeline.server.api_errors import bad_request
from genai_pipeline.server.long_texts import LongTexts

SLICE: Final = 2000  # pieces of a value that are written without letting others run
THREADED: Final = 1 << 16  # bytes from which on a text is read on a worker thread

# A string (perhaps one that never ends), or a sign of structure. Possessive, so the time is linear.
_STRUCTURE: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{},]', re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE: Final = re.compile("[\ud800-\udfff]")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def parse(data: bytes, *, depth: int, items: int, most: int) -> Any:
    """The value of a JSON text in UTF-8. Raises ApiError 400 for anything else, or beyond the bounds.

    What is longer than ``most`` must be so by long texts. Raises ApiError 413 where it is not.
    """
    if len(data) < THREADED:
        return _parse(data, depth, items)
    return await asyncio.to_thread(_parse if len(data) <= most else partial(_parse_long, most), data, depth, items)


async def encode(value: Any) -> bytes:
    """The value as JSON in UTF-8; a large one is written in slices."""
    pieces: list[str] = []
    for index, piece in enumerate(_ENCODER.iterencode(value), 1):
        pieces.append(piece)
        if index % SLICE == 0:
            await asyncio.sleep(0)
    return "".join(pieces).encode("utf-8", errors="replace")


def text_size(value: Any) -> int:
    """About how long a value is as text, told without writing it."""
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, dict):
        return sum(len(key) + 4 + text_size(inner) for key, inner in value.items())
    return sum(map(text_size, value)) + 2 if isinstance(value, list) else 8


def dumps(value: Any) -> str:
    """A small value as JSON text."""
    return _ENCODER.encode(value)


def _parse_long(most: int, data: bytes, depth: int, items: int) -> Any:
    texts = LongTexts(most)
    return texts.put_back(_parse(texts.cut(data), depth, items))


def _parse(data: bytes, depth: int, items: int) -> Any:
    _measure(data, depth, items)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not valid UTF-8 (byte {error.start})", code="invalid_json") from None
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except json.JSONDecodeError as error:
        message = f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise bad_request(message, code="invalid_json") from None
    except (ValueError, RecursionError):
        raise bad_request("the body has a number that cannot be read", code="invalid_json") from None
    if _SURROGATE.search(data) and _has_lone_surrogate(value):
        raise bad_request("the body has half a surrogate pair, which is no character", code="invalid_json")
    return value


def _measure(data: bytes, depth: int, items: int) -> None:
    """Refuse a text that is nested too deeply or has too many values. Raises ApiError."""
    level = count = 0
    for found in _STRUCTURE.finditer(data):
        sign = data[found.start()]
        if sign in b"[{":
            level += 1
            count += 1
        elif sign in b"]}":
            level -= 1
        elif sign in b",":
            count += 1
        if level > depth:
            raise bad_request(f"the body is nested more than {depth} levels deep", code="json_too_deep")
        if count > items:
            raise bad_request(f"the body has more than {items} values", code="json_too_many_items")


def _has_lone_surrogate(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if _LONE.search(item):
                return True
        elif isinstance(item, dict):
            pending.extend(item)
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return False


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value

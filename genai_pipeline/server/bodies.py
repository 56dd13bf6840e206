"""Bodies of requests: one JSON object within the limits, read field by field with types."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from starlette.requests import Request

from genai_pipeline.option_values import as_integer, as_number
from genai_pipeline.problems import nearest, shown
from genai_pipeline.server import json_text
from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.room import claim

MAX_REMEMBERED: Final = 1000  # unknown fields that were logged and are not logged again
SHOWN: Final = 60  # characters of a client's text in a log line or a message

JsonList = list[Any]
JsonObject = dict[str, Any]
Value = TypeVar("Value")

_log = logging.getLogger("genai_pipeline.server")
_skipped: set[tuple[str, str]] = set()


async def read_json(request: Request) -> JsonObject:
    """The body as a JSON object. Raises ApiError 400, 413 or 415."""
    return await _read_object(request, request.app.state.config.limits.body_bytes)


async def read_media_json(request: Request) -> JsonObject:
    """The same where texts of it may be images and sounds, and models take these: such a body may be larger."""
    limits = request.app.state.config.limits
    known = await request.app.state.host.abilities()
    takes_media = any(abilities.takes_media for abilities in known.values())
    return await _read_object(request, max(limits.body_bytes, limits.media_bytes if takes_media else 0))


async def _read_object(request: Request, most: int) -> JsonObject:
    _check_content_type(request)
    limits = request.app.state.config.limits
    data = await read_body(request, most)
    value = await json_text.parse(data, depth=limits.json_depth, items=limits.json_items, most=limits.body_bytes)
    if not isinstance(value, dict):
        raise bad_request(f"the body must be a JSON object, not {_kind(value)}", code="invalid_json")
    return value


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes of the body. Raises ApiError 413 as soon as they are known to be more than ``limit``.

    A body beyond the usual size takes of the room that all requests share; ApiError 503 where there is none left.
    """
    check_encoding(request)
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    usual: int = request.app.state.config.limits.body_bytes
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if size > usual:
            claim(request).take(len(part))
        parts.append(part)
    return b"".join(parts) if size <= usual else await asyncio.to_thread(b"".join, parts)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")


def check_encoding(request: Request) -> None:
    """Raises ApiError 415 for a body that is compressed: what it would grow to is not known."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise ApiError(415, "the body must come as it is, without Content-Encoding", code="encoded_body")


def _check_content_type(request: Request) -> None:
    """Only JSON is taken, so that no other web page can send a request through somebody's browser unasked."""
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != "application/json" and not (given.startswith("application/") and given.endswith("+json")):
        raise ApiError(415, "the body must be JSON: send the header Content-Type: application/json", code="not_json")


class Fields:
    """The fields of an object, taken one by one; null is as good as absent.

    ``at`` is where the object stands in the body ("messages[0]."), for messages. Every reader raises ApiError 400.
    """

    def __init__(self, body: Mapping[str, Any], at: str = "") -> None:
        self._body = body
        self._at = at
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the field is there and not null; asking does not count as reading."""
        return self._body.get(name) is not None

    def any(self, name: str) -> Any:
        """The field as it is, None where it is absent."""
        self._read.add(name)
        return self._body.get(name)

    def text(self, name: str) -> str | None:
        """A text."""
        return self._typed(name, str, "a string")

    def boolean(self, name: str) -> bool | None:
        """True or false."""
        return self._typed(name, bool, "true or false")

    def list(self, name: str) -> JsonList | None:
        """A list."""
        return self._typed(name, list, "a list")

    def mapping(self, name: str) -> JsonObject | None:
        """An object."""
        return self._typed(name, dict, "an object")

    def integer(self, name: str, *, low: int | None = None, high: int | None = None) -> int | None:
        """A whole number within bounds; 3.0 counts as one."""
        value = self.any(name)
        whole = int(value) if isinstance(value, float) and value.is_integer() else as_integer(value)
        if value is not None and whole is None:
            raise self.wrong(name, f"must be an integer, not {_kind(value)}")
        return self._within(name, whole, low, high)

    def number(self, name: str, *, low: float | None = None, high: float | None = None) -> float | None:
        """A number within bounds."""
        value = self.any(name)
        given = as_number(value)
        if value is not None and given is None:
            raise self.wrong(name, f"must be a number, not {_kind(value)}")
        if given is not None and not math.isfinite(given):
            raise self.wrong(name, f"must be a number that a float holds, not {shown(value)}")
        return self._within(name, given, low, high)

    def choice(self, name: str, allowed: Iterable[str]) -> str | None:
        """One of some texts."""
        value = self.text(name)
        if value is not None and value not in allowed:
            names = ", ".join(f"'{word}'" for word in allowed)
            raise self.wrong(name, f"must be one of {names}, not '{value[:SHOWN]}'")
        return value

    def must(self, name: str, value: Value | None) -> Value:
        """What was read of a field that has to be there."""
        if value is None:
            raise self.wrong(name, "is required")
        return value

    def refuse(self, *names: str) -> None:
        """Refuse fields of the interface that would change the answer and are not supported here."""
        for name in names:
            if self.any(name) is not None:
                raise bad_request(f"{self._at}{name} is not supported", f"{self._at}{name}", code="unsupported_field")

    def refuse_for(self, instead: Mapping[str, str]) -> None:
        """Refuse fields of another interface, each with the field that stands for it in this one."""
        for name, ours in instead.items():
            if self.any(name) is not None:
                message = f"{self._at}{name} is no field of this interface: use {ours}"
                raise bad_request(message, f"{self._at}{name}", code="unsupported_field")

    def ignore(self, *names: str) -> None:
        """Take note of fields that change no answer."""
        self._read.update(names)

    def rest(self) -> JsonObject:
        """The fields nobody has read."""
        return {name: value for name, value in self._body.items() if name not in self._read}

    def skip_rest(self, path: str) -> None:
        """Log the fields that nobody has read, each once in the life of the process."""
        for name in self.rest():
            field = (path, f"{self._at}{name}"[:SHOWN])
            if field in _skipped or len(_skipped) >= MAX_REMEMBERED:
                continue
            _skipped.add(field)
            meant = nearest(name[:SHOWN], self._read)
            extra = {"event": "field_skipped", "path": path, "field": field[1], **({"hint": meant} if meant else {})}
            _log.warning("unknown field %r is skipped", field[1], extra=extra)

    def wrong(self, name: str, says: str) -> ApiError:
        """A 400 about a field."""
        return bad_request(f"{self._at}{name} {says}", f"{self._at}{name}")

    def _typed(self, name: str, kind: type[Value], expected: str) -> Value | None:
        value = self.any(name)
        if value is not None and not isinstance(value, kind):
            raise self.wrong(name, f"must be {expected}, not {_kind(value)}")
        return value

    def _within(self, name: str, value: Number | None, low: float | None, high: float | None) -> Number | None:
        if value is None:
            return None
        if low is not None and value < low:
            raise self.wrong(name, f"must be at least {low}, not {shown(value)}")
        if high is not None and value > high:
            raise self.wrong(name, f"must be at most {high}, not {shown(value)}")
        return value


Number = TypeVar("Number", int, float)


def _kind(value: object) -> str:
    """What a value is, in words."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return "a number"
    words: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
    return words.get(type(value), "something else")

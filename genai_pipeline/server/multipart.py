"""Bodies of ``multipart/form-data`` (RFC 7578), read on a worker thread from bytes that are all there.

A body is bounded before it comes here. Parts are found by their delimiter, so what is in a file is never looked at.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from genai_pipeline.server.api_errors import ApiError, bad_request
from genai_pipeline.server.bodies import read_body

MAX_PARTS: Final = 64
MAX_HEADERS: Final = 8192  # bytes of the headers of a part
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_LINE: Final = b"\r\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a form; a file has a ``filename``."""

    name: str
    filename: str | None
    data: bytes

    def text(self) -> str:
        """The value of a field that is no file. Raises ApiError 400."""
        try:
            return self.data.decode("utf-8")
        except UnicodeDecodeError:
            raise bad_request(f"{self.name} is not valid UTF-8", self.name) from None


async def read_form(request: Request, limit: int) -> list[Part]:
    """The parts of a form of at most ``limit`` bytes. Raises ApiError 400, 403, 413 or 415."""
    kind, boundary = _content_type(request.headers.get("content-type", ""))
    if kind != "multipart/form-data":
        message = "the body must be a form: send the header Content-Type: multipart/form-data"
        raise ApiError(415, message, code="not_multipart")
    if boundary is None:
        raise _invalid("the header Content-Type has no boundary")
    _check_origin(request)
    data = await read_body(request, limit)
    return await asyncio.to_thread(parse, data, boundary)


def parse(data: bytes, boundary: str) -> list[Part]:
    """The parts of a body. Raises ApiError 400."""
    delimiter = f"--{boundary}".encode()
    place = 0 if data.startswith(delimiter) else _found(data, _LINE + delimiter, 0) + len(_LINE)
    parts: list[Part] = []
    while True:
        place += len(delimiter)
        if data.startswith(b"--", place):
            return parts
        if len(parts) == MAX_PARTS:
            raise _invalid(f"the form has more than {MAX_PARTS} parts")
        start = _found(data, _LINE, place) + len(_LINE)
        if data[place : start - len(_LINE)].strip(b" \t"):
            raise _invalid("the form is malformed after a boundary")
        end = _found(data, _LINE + delimiter, start - len(_LINE))
        parts.append(_part(data, start, end))
        place = end + len(_LINE)


def _part(data: bytes, start: int, end: int) -> Part:
    headers_end = data.find(_LINE + _LINE, start, min(end, start + MAX_HEADERS))
    if headers_end < 0:
        raise _invalid("a part of the form has no headers, or too many")
    headers = data[start:headers_end].decode("utf-8", errors="replace")
    disposition = next((line for line in headers.split("\r\n") if line.lower().startswith("content-disposition:")), "")
    message = Message()
    message["content-disposition"] = disposition.partition(":")[2].strip()
    name = _parameter(message, "name")
    if message.get_content_disposition() != "form-data" or name is None:
        raise _invalid("a part of the form has no name")
    return Part(name, _parameter(message, "filename"), data[headers_end + 2 * len(_LINE) : end])


def _parameter(message: Message, name: str) -> str | None:
    value = message.get_param(name, header="content-disposition")
    return None if value is None else collapse_rfc2231_value(value)


def _content_type(header: str) -> tuple[str, str | None]:
    """The type of a body, and the boundary that its header names, if that is one."""
    message = Message()
    message["content-type"] = header
    boundary = message.get_boundary()
    kind = header.split(";")[0].strip().lower()
    return kind, boundary if boundary is not None and _BOUNDARY.fullmatch(boundary) else None


def _check_origin(request: Request) -> None:
    """A web page could send a form through somebody's browser unasked; only pages that may are heard."""
    origin = request.headers.get("origin")
    if origin is None or origin in request.app.state.config.cors:
        return
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise ApiError(403, "pages of this origin may not send forms", code="origin_not_allowed")


def _found(data: bytes, what: bytes, start: int) -> int:
    place = data.find(what, start)
    if place < 0:
        raise _invalid("the form ends early")
    return place


def _invalid(message: str) -> ApiError:
    return bad_request(message, code="invalid_multipart")

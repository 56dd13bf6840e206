"""Media that stand in a body as base64 text or as a data URL: decoded in pieces, so that other threads get their turn.

Strict: what is no base64 is refused and nothing of it is passed on. Messages name the field and repeat nothing of it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from genai_pipeline.server.api_errors import ApiError, bad_request

STEP: Final = 1 << 18  # characters decoded at once; whole groups of four
HEAD: Final = 1024  # most characters of a data URL before its comma
PLAIN: Final = 1 << 20  # most characters of a data URL that is not base64

_MEDIA_TYPE: Final = re.compile(r"[a-z]+/[a-z0-9.+-]+")


@dataclass(frozen=True, slots=True)
class Media:
    """What a client gave; ``type`` is what its sender calls it, "" when it says nothing usable."""

    data: bytes
    type: str


def is_data_url(url: str) -> bool:
    """Whether a URL has its media in itself."""
    return url[:5].lower() == "data:"


def read_data_url(url: str, most: int, param: str | None) -> Media:
    """What is in a data URL, at most ``most`` bytes. Raises ApiError 400."""
    comma = url.find(",", 0, HEAD)
    if comma < 0:
        raise _invalid("the data URL is malformed: data:image/png;base64,...", param)
    head = url[5:comma]
    if head.lower().endswith(";base64"):
        return Media(read_base64(url, most, param, comma + 1), media_type(head))
    if len(url) > PLAIN:
        raise _invalid("a data URL of this size must be base64", param)
    return Media(_within(unquote_to_bytes(url[comma + 1 :]), most, param), media_type(head))


def read_base64(text: str, most: int, param: str | None, start: int = 0) -> bytes:
    """The bytes that base64 text means from a place on, at most ``most``. Raises ApiError 400."""
    if (len(text) - start) // 4 * 3 > most + 2:
        raise too_large(most, param)
    pieces = []
    for place in range(start, len(text), STEP):
        piece = text[place : place + STEP]
        if "=" in piece and place + STEP < len(text):
            raise _invalid("the data is not valid base64", param)
        try:
            pieces.append(base64.b64decode(piece, validate=True))
        except (binascii.Error, ValueError):
            raise _invalid("the data is not valid base64", param) from None
    return _within(b"".join(pieces), most, param)


def media_type(header: str) -> str:
    """The type that a header names, "" for none or what is none."""
    kind = header.split(";")[0].strip().lower()
    return kind if _MEDIA_TYPE.fullmatch(kind) else ""


def too_large(most: int, param: str | None) -> ApiError:
    """A 400 for media of more than ``most`` bytes."""
    return bad_request(f"the media is larger than {most} bytes", param, code="media_too_large")


def _within(data: bytes, most: int, param: str | None) -> bytes:
    if len(data) > most:
        raise too_large(most, param)
    if not data:
        raise _invalid("there is no data", param)
    return data


def _invalid(message: str, param: str | None) -> ApiError:
    return bad_request(message, param, code="media_invalid")

"""Long texts of a JSON body, which are media: cut out before the rest is read, and put back into the value.

Libraries read JSON in one go and let no other thread run meanwhile. A body of many megabytes is mostly base64: what is
left without it is as short as other bodies. The work here is done in pieces, so that other threads get their turn.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from genai_pipeline.server.api_errors import ApiError, bad_request

LONG: Final = 4096  # bytes of a text from which on it is cut out
STEP: Final = 1 << 20  # bytes looked at without letting others run
FIELDS: Final = frozenset({"url", "image_url", "audio_url", "data"})  # of media: how long these are is no matter here
_PRINTABLE: Final = bytes(range(0x20, 0x7F)).replace(b'"', b"").replace(b"\\", b"")
_QUOTE: Final = b'"'
_ESCAPE: Final = ord("\\")


class LongTexts:
    """The long texts of one body, each behind a mark that no client can know; ``most``: bytes of all besides media."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._budget = most  # escaped quotes, and signs before them, that are looked at
        self._nonce = secrets.token_hex(16)
        self._texts: list[str] = []

    def cut(self, data: bytes) -> bytes:
        """The body with marks in place of long texts. Raises ApiError 413 where too much is left.

        Only plain texts are cut out: printable ASCII, slashes escaped or not, as base64 and URLs are.
        """
        pieces: list[bytes | memoryview] = []
        view, kept = memoryview(data), 0
        place = data.find(_QUOTE)
        while place >= 0 and place - kept <= self._left:
            end = self._closing(data, place + 1)
            if end - place > LONG and (text := _plain(data, place + 1, end)) is not None:
                pieces += [view[kept : place + 1], self._mark(text)]
                self._left -= place + 1 - kept
                kept = end
            place = data.find(_QUOTE, end + 1)
        self._take(len(data) - kept)
        return b"".join([*pieces, view[kept:]])

    def put_back(self, value: Any) -> Any:
        """A value with its long texts. Raises ApiError 400 for a name that is one, 413 for too much beside media."""
        pending = [value] if isinstance(value, dict | list) else []
        while pending:
            item: Any = pending.pop()
            for key, inner in list(item.items() if isinstance(item, dict) else enumerate(item)):
                if isinstance(key, str) and key.startswith(self._nonce):
                    raise bad_request(f"a name has more than {LONG} characters", code="invalid_json")
                if isinstance(inner, dict | list):
                    pending.append(inner)
                elif isinstance(inner, str) and inner.startswith(self._nonce):
                    item[key] = self._text(key, inner)
        return value

    def _text(self, key: Any, mark: str) -> str:
        text = self._texts[int(mark[len(self._nonce) :])]
        if key not in FIELDS:
            self._take(len(text))
        return text

    def _take(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise self._too_large()

    def _mark(self, text: str) -> bytes:
        self._texts.append(text)
        return f"{self._nonce}{len(self._texts) - 1}".encode()

    def _closing(self, data: bytes, start: int) -> int:
        """Where the text ends that starts here: at a quote that is not escaped. Raises ApiError 413."""
        end = data.find(_QUOTE, start)
        while end >= 0:
            first = end
            while first > start and data[first - 1] == _ESCAPE and end - first <= self._budget:
                first -= 1
            if (end - first) % 2 == 0:
                return end
            self._budget -= end - first
            if self._budget < 0:
                raise self._too_large()
            end = data.find(_QUOTE, end + 1)
        return len(data)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._most} bytes without its media", code="body_too_large")


def _plain(data: bytes, start: int, end: int) -> str | None:
    """The text, or None where it has more in it than printable ASCII and escaped slashes."""
    pieces = []
    place = start
    while place < end:
        stop = min(place + STEP, end)
        if stop < end and data[stop - 1] == _ESCAPE:
            stop += 1  # the sign and what it escapes stay together
        piece = data[place:stop].replace(b"\\/", b"/")
        if piece.translate(None, _PRINTABLE):
            return None
        pieces.append(piece)
        place = stop
    return str(b"".join(pieces), "ascii")

"""Bytes of an image or a sound: from a path, bytes, a data URL or a binary file object, within a limit.

Nothing here ever opens a network address. Only regular files are read: no folders, devices, pipes or sockets.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from genai_pipeline.errors import MediaError

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_HEADER_BYTES: Final = 1024  # most of a data URL before its comma
_PIECE_BYTES: Final = 1 << 20  # read at once from a file object, which may take the memory before it reads
_BASE64_GROWTH: Final = (4, 3)  # 4 characters for 3 bytes
_PERCENT_GROWTH: Final = (3, 1)  # 3 characters for a byte
_FORMS: Final = "a path, bytes, a data: URL or a binary file object"


def read_media(source: Any, what: str, limit_bytes: int) -> bytes:
    """The bytes of ``source``, a path, bytes, a data URL or a binary file object.

    ``what`` names the input, for errors and their ``param``. Raises MediaError: too large, not there, not a regular
    file, a malformed data URL, a network address, an object of another kind.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return _within(bytes(source), what, limit_bytes)
    if isinstance(source, str) and source[:5].lower() == "data:":
        return _data_url(source, what, limit_bytes)
    if isinstance(source, str) and _ADDRESS.match(source):
        raise MediaError(f"{what} is an address, which is not opened", param=what, hint=f"give {_FORMS}")
    if isinstance(source, str | os.PathLike):
        return _file(source, what, limit_bytes)
    if callable(getattr(source, "read", None)):
        return _stream(source, what, limit_bytes)
    raise MediaError(f"{what} is of type {type(source).__name__}", param=what, hint=f"give {_FORMS}")


def _too_large(what: str, limit_bytes: int) -> MediaError:
    return MediaError(f"{what} has more than {limit_bytes} bytes", param=what, hint="give a smaller file")


def _within(data: bytes, what: str, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _too_large(what, limit_bytes)
    if not data:
        raise MediaError(f"{what} is empty", param=what)
    return data


def _data_url(url: str, what: str, limit_bytes: int) -> bytes:
    comma = url.find(",", 0, _HEADER_BYTES)
    if comma < 0:
        raise MediaError(
            f"{what} is a data URL without a comma before its data", param=what, hint="data:image/png;base64,..."
        )
    encoded = url[:comma].lower().endswith(";base64")
    growth, per = _BASE64_GROWTH if encoded else _PERCENT_GROWTH
    if (len(url) - comma) * per > (limit_bytes + 3) * growth * (2 if encoded else 1):  # base64 may be broken in lines
        raise _too_large(what, limit_bytes)
    try:
        return _within(_decoded(url[comma + 1 :], encoded), what, limit_bytes)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise MediaError(f"{what} is a data URL whose data is not base64: {error}", param=what) from None


def _decoded(text: str, encoded: bool) -> bytes:
    data = unquote_to_bytes(text) if "%" in text or not encoded else text.encode("ascii")
    return base64.b64decode(b"".join(data.split()), validate=True) if encoded else data


def _file(path: str | os.PathLike[str], what: str, limit_bytes: int) -> bytes:
    name = os.fspath(path)
    try:
        # Opening a pipe or a device could block or have an effect before anybody has seen what it is.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise MediaError(f"{what}: '{name}' is not a regular file", param=what, hint=f"give {_FORMS}")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            # The file may have been exchanged since it was looked at.
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise MediaError(f"{what}: '{name}' is not a regular file", param=what, hint=f"give {_FORMS}")
            # No more than its size and a byte: the memory for what is asked for is taken before it is read.
            return _within(file.read(min(found.st_size, limit_bytes) + 1), what, limit_bytes)
    except FileNotFoundError:
        raise MediaError(f"{what}: there is no file '{name}'", param=what, hint=f"give {_FORMS}") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MediaError(f"{what}: '{name}' cannot be read: {reason}", param=what) from error


def _stream(source: Any, what: str, limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    left = limit_bytes + 1
    while left > 0:
        try:
            piece = source.read(min(left, _PIECE_BYTES))
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise MediaError(f"{what} cannot be read: {error}", param=what) from error
        if not isinstance(piece, bytes | bytearray):
            kind = type(piece).__name__
            raise MediaError(f"{what} gives {kind} where it is read", param=what, hint="open the file in mode 'rb'")
        if not piece:
            break
        pieces.append(bytes(piece))
        left -= len(piece)
    return _within(b"".join(pieces), what, limit_bytes)

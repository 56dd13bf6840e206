"""What the bytes of a file tell before a decoder opens it: sizes and counts that would cost memory or time."""

from __future__ import annotations

from typing import Final

_WEBP_HEADER: Final = 30  # bytes up to the end of a canvas's size
_JPEG: Final = b"\xff\xd8"
_SCAN: Final = b"\xff\xda"  # begins a scan of a JPEG file, and stands nowhere else in its compressed data


def webp_size(data: bytes) -> tuple[int, int] | None:
    """Width and height of a WebP file's canvas, None for other files.

    Its decoder takes memory for the whole canvas as soon as it opens a file.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < _WEBP_HEADER:
        return None
    kind = data[12:16]
    if kind == b"VP8X":  # 24 bits each, less one
        return _little(data, 24, 3) + 1, _little(data, 27, 3) + 1
    if kind == b"VP8L":  # 14 bits each, less one
        bits = _little(data, 21, 4)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return (_little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF) if kind == b"VP8 " else None


def jpeg_scans(data: bytes) -> int:
    """How many scans a JPEG file has, 0 for other files; those of a preview in its metadata count too.

    Each scan of a progressive file goes over the whole picture: a file of a few kilobytes can have thousands.
    """
    return data.count(_SCAN) if data[:2] == _JPEG else 0


def _little(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "little")

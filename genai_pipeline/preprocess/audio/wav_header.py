"""Reads the header of a WAV file piece by piece: for streams that cannot be sought, and to see what a file promises."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from genai_pipeline.errors import MediaError

PCM, FLOAT, EXTENSIBLE = 0x0001, 0x0003, 0xFFFE
HEADER_LIMIT: Final = 1 << 20  # bytes before the samples; more is no header
# Writers that do not know the length yet (pipes, recorders) write 0, or a size of about 2 or 4 GiB.
_UNKNOWN_FROM: Final = 0x7FFF0000
_FORMAT_BYTES: Final = 16  # of a fmt chunk, without extensions
_SUBFORMAT_AT: Final = 24  # of an extensible fmt chunk: its real encoding


@dataclass(frozen=True, slots=True)
class WavHeader:
    """What stands before the samples; ``data_bytes`` None: the length is unknown, the samples go on to the end."""

    encoding: int  # PCM, FLOAT, or another number of the WAV registry
    channels: int
    rate: int  # samples per second
    bits: int  # of one sample of one channel
    data_bytes: int | None


def read_wav_header(read: Callable[[int], bytes], what: str) -> WavHeader:
    """Read up to the first sample with ``read(n)``, which gives n bytes, fewer only at the end of the stream.

    Understands RIFF and RF64. Raises MediaError for everything else, and for a header that never ends.
    """
    kind = _exactly(read, 12, what)
    if kind[:4] not in (b"RIFF", b"RF64") or kind[8:] != b"WAVE":
        raise MediaError(f"{what} is not a WAV stream", param=what)
    layout: tuple[int, int, int, int] | None = None
    long_size: int | None = None
    left = HEADER_LIMIT
    while left > 0:
        name, size = struct.unpack("<4sI", _exactly(read, 8, what))
        if name == b"data":
            if layout is None:
                break
            return WavHeader(*layout, _data_bytes(size, long_size))
        left -= 8 + size
        if left <= 0:
            break
        body = _exactly(read, size + size % 2, what)[:size]  # chunks are padded to an even length
        if name == b"fmt ":
            layout = _layout(body, what)
        elif name == b"ds64" and len(body) >= 16:
            long_size = int(struct.unpack_from("<Q", body, 8)[0])
    raise MediaError(f"{what} is a WAV stream whose header is damaged", param=what)


def _exactly(read: Callable[[int], bytes], count: int, what: str) -> bytes:
    data = read(count)
    if len(data) < count:
        raise MediaError(f"{what} ends within its WAV header", param=what)
    return data


def _layout(body: bytes, what: str) -> tuple[int, int, int, int]:
    if len(body) < _FORMAT_BYTES:
        raise MediaError(f"{what} is a WAV stream whose header is damaged", param=what)
    encoding, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if encoding == EXTENSIBLE and len(body) >= _SUBFORMAT_AT + 2:
        (encoding,) = struct.unpack_from("<H", body, _SUBFORMAT_AT)
    return encoding, channels, rate, bits


def _data_bytes(size: int, long_size: int | None) -> int | None:
    if size == 0xFFFFFFFF and long_size:
        return long_size
    return None if size == 0 or size >= _UNKNOWN_FROM else size

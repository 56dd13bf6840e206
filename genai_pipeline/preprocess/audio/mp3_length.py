"""Tells the length of MP3 files whose headers do not: decoders estimate it from the first frame, and stop there.

A file of variable bit rate has its number of frames in a first frame of its own ("Xing", or "Info" for constant ones),
unless it was cut out of another or written to a pipe. Such a file gets one in front, after its frames are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KBITS: Final = {
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES: Final = (44100, 48000, 32000)
_HALVINGS: Final = {3: 0, 2: 1, 0: 2}  # of the rates, by the version bits: 1, 2 and 2.5
_JUNK: Final = 1 << 16  # bytes without a frame after which none is looked for
_ALL_JUNK: Final = 1 << 20  # bytes between frames, all together, that are looked through
_OWN_BITRATE: Final = 9  # index of the frame that is put in front: large enough for all it holds
_FRAMES_KNOWN: Final = 1


@dataclass(frozen=True, slots=True)
class _Frame:
    """The header of a layer III frame."""

    version: int  # 1, or 2 for 2 and 2.5
    rate: int
    size: int  # bytes, header included
    side: int  # bytes of side information

    @property
    def kind(self) -> tuple[int, int]:
        """What all frames of one file have in common."""
        return self.version, self.rate


def with_length(data: bytes) -> bytes:
    """The file, with a first frame that has the number of frames if it had none. What is not layer III stays."""
    first = _next_frame(data, _after_tag(data), None)
    if first is None:
        return data
    at, frame = first
    tag = data[at + 4 + frame.side : at + 4 + frame.side + 12]
    if data[at + 36 : at + 40] == b"VBRI" or (tag[:4] in (b"Xing", b"Info") and _tells_frames(tag)):
        return data
    start = at + frame.size if tag[:4] in (b"Xing", b"Info") else at  # such a frame holds no sound
    return _length_frame(data[at : at + 4], frame, _count(data, start, frame)) + data[start:]


def _tells_frames(tag: bytes) -> bool:
    return len(tag) == 12 and bool(tag[7] & _FRAMES_KNOWN) and int.from_bytes(tag[8:], "big") > 0


def _after_tag(data: bytes) -> int:
    """Where an ID3v2 tag ends; its size has seven bits a byte."""
    if data[:3] != b"ID3" or len(data) < 10:
        return 0
    size = 0
    for byte in data[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size


def _count(data: bytes, at: int, like: _Frame) -> int:
    count = junk = 0
    while junk <= _ALL_JUNK and (found := _next_frame(data, at, like)) is not None:
        count += 1
        junk += found[0] - at
        at = found[0] + found[1].size
    return count


def _next_frame(data: bytes, at: int, like: _Frame | None) -> tuple[int, _Frame] | None:
    """The frame at ``at``, or the next one behind junk; of the kind of ``like``."""
    stop = min(len(data), at + _JUNK)
    while at >= 0 and at + 4 <= len(data):
        frame = _frame(data[at : at + 4])
        if frame is not None and (like is None or frame.kind == like.kind) and at + frame.size <= len(data):
            return at, frame
        at = data.find(b"\xff", at + 1, stop)
    return None


def _frame(header: bytes) -> _Frame | None:
    if header[0] != 0xFF or header[1] & 0xE6 != 0xE2:  # eleven bits of sync; the layer bits of layer III are 01
        return None
    halvings = _HALVINGS.get(header[1] >> 3 & 3)
    bitrate, rate = header[2] >> 4, header[2] >> 2 & 3
    if halvings is None or rate == 3 or not 1 <= bitrate <= 14:
        return None
    version = 1 if halvings == 0 else 2
    hertz = _RATES[rate] >> halvings
    size = (144 if version == 1 else 72) * _KBITS[version][bitrate - 1] * 1000 // hertz + (header[2] >> 1 & 1)
    mono = header[3] >> 6 == 3
    side = {(1, False): 32, (1, True): 17, (2, False): 17, (2, True): 9}[version, mono]
    return _Frame(version, hertz, size, side)


def _length_frame(header: bytes, like: _Frame, count: int) -> bytes:
    """A frame without sound that has the number of frames; no checksum, no padding."""
    own = bytes([0xFF, header[1] | 1, _OWN_BITRATE << 4 | header[2] & 0x0C, header[3]])
    frame = _frame(own)
    assert frame is not None, own
    tag = b"Xing" + _FRAMES_KNOWN.to_bytes(4, "big") + count.to_bytes(4, "big")
    return (own + bytes(like.side) + tag).ljust(frame.size, b"\0")

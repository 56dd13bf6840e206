"""Sound that is still coming in: bytes of a stream become blocks of samples as they arrive.

Takes a WAV stream, whose header may not know how long it will be, or bare 16-bit samples of a given rate. Memory is
bounded by one block, whatever comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio.limits import SoundLimits
from genai_pipeline.preprocess.audio.resampling import LiveResampler
from genai_pipeline.preprocess.audio.sound import FloatArray
from genai_pipeline.preprocess.audio.wav_header import FLOAT, PCM, WavHeader, read_wav_header

_BARE_BITS: Final = 16
_NO_LIMITS: Final = SoundLimits(float("inf"), 0)  # a stream has no duration; its rate and channels are checked
_READ_SECONDS: Final = 0.1  # most that is read at once, so that blocks are ready as early as they can be

Decoder = Callable[[bytes], NDArray[Any]]


def _signed(dtype: str, bits: int) -> Decoder:
    return lambda data: np.frombuffer(data, dtype) / np.float32(1 << (bits - 1))


def _unsigned_bytes(data: bytes) -> NDArray[Any]:
    return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)


def _three_bytes(data: bytes) -> NDArray[Any]:
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)  # the upper bytes of 32: the sign is right
    return wide.view("<i4")[:, 0] / np.float64(1 << 31)


_DECODERS: Final[dict[tuple[int, int], Decoder]] = {
    (PCM, 8): _unsigned_bytes,
    (PCM, 16): _signed("<i2", 16),
    (PCM, 24): _three_bytes,
    (PCM, 32): lambda data: np.frombuffer(data, "<i4") / np.float64(1 << 31),
    (FLOAT, 32): lambda data: np.frombuffer(data, "<f4"),
    (FLOAT, 64): lambda data: np.frombuffer(data, "<f8"),
}


class PcmReader:
    """Iterates over blocks of one channel, float32 [block] in -1 to 1; the last block may be shorter, none is empty.

    ``file``: a binary file object, read as bytes come. ``block``: samples of a block, at the rate ``to``.
    ``rate``: of bare 16-bit little-endian samples, with ``channels``; None: the stream is a WAV stream.
    ``to``: the rate of the blocks; None: that of the stream. Raises MediaError for a stream that is something else,
    already when it is made, and while iterating for one that ends before its header says.
    """

    def __init__(
        self,
        file: BinaryIO,
        block: int,
        *,
        rate: int | None = None,
        channels: int = 1,
        to: int | None = None,
        what: str = "audio",
    ) -> None:
        self._file, self._what, self._block = file, what, block
        if rate is None:
            self._header = read_wav_header(self._exactly, what)
        else:
            self._header = WavHeader(PCM, channels, rate, _BARE_BITS, None)
        _NO_LIMITS.check(what, self._header.rate, self._header.channels, None)
        decoder = _DECODERS.get((self._header.encoding, self._header.bits))
        if decoder is None:
            raise MediaError(
                f"{what} is a WAV stream of encoding {self._header.encoding} with {self._header.bits} bits",
                param=what,
                hint="streams have integers of 8, 16, 24 or 32 bits, or floats of 32 or 64",
            )
        self._decode = decoder
        self.rate = to or self._header.rate  # of the blocks
        self._resampler = LiveResampler(self._header.rate, self.rate)

    def __iter__(self) -> Iterator[FloatArray]:
        held = np.empty(0, np.float32)
        for piece in self._resampled():
            held = np.concatenate([held, piece])
            whole = len(held) - len(held) % self._block
            yield from (held[start : start + self._block] for start in range(0, whole, self._block))
            held = held[whole:].copy()
        if len(held):
            yield held

    def _resampled(self) -> Iterator[FloatArray]:
        for samples in self._samples():
            yield self._resampler.feed(samples)
        yield self._resampler.feed(np.empty(0, np.float32), last=True)

    def _samples(self) -> Iterator[FloatArray]:
        """The mean of the channels, of whole frames as they come."""
        frame = self._header.channels * self._header.bits // 8
        rest = b""
        for data in self._bytes(frame * max(1, round(_READ_SECONDS * self._header.rate))):
            data = rest + data
            whole = len(data) - len(data) % frame
            rest = data[whole:]
            samples = self._decode(data[:whole]).reshape(-1, self._header.channels)
            mixed = samples[:, 0] if self._header.channels == 1 else samples.mean(axis=1)
            if not np.isfinite(mixed).all():
                raise MediaError(f"{self._what} has samples that are no finite numbers", param=self._what)
            yield mixed.astype(np.float32)
        if rest:
            raise MediaError(f"{self._what} ends within a sample", param=self._what)

    def _bytes(self, most: int) -> Iterator[bytes]:
        """The bytes of samples, up to the length in the header or to the end of the stream."""
        promised = self._header.data_bytes
        left = promised
        while left != 0 and (data := self._some(most if left is None else min(most, left))):
            left = None if left is None else left - len(data)
            yield data
        if left:
            message = f"{self._what} is cut short: {left} of {promised} bytes of samples are missing"
            raise MediaError(message, param=self._what, hint="its header tells more")

    def _some(self, most: int) -> bytes:
        """What has come, at most ``most`` bytes; waits for the first one; none: the stream has ended."""
        read = getattr(self._file, "read1", self._file.read)
        try:
            data = read(most)
        except (OSError, ValueError) as error:  # ValueError: it is closed
            raise MediaError(f"{self._what} cannot be read: {error}", param=self._what) from error
        if data is not None and not isinstance(data, bytes | bytearray):
            hint = "open the file in mode 'rb'"
            raise MediaError(f"{self._what} gives {type(data).__name__} where it is read", param=self._what, hint=hint)
        if data is None:
            hint = "give a blocking stream"
            raise MediaError(f"{self._what} is a stream that does not wait for bytes", param=self._what, hint=hint)
        return bytes(data)

    def _exactly(self, count: int) -> bytes:
        pieces: list[bytes] = []
        while count > 0 and (data := self._some(count)):
            pieces.append(data)
            count -= len(data)
        return b"".join(pieces)

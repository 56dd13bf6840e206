"""Streams of samples that arrive in pieces of any size give what the whole would give."""

from __future__ import annotations

import io
import os
import threading
import tracemalloc
from collections.abc import Callable
from typing import BinaryIO, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.audio.live import PcmReader
from genai_pipeline.preprocess.audio.resampling import resample

Encode = Callable[..., bytes]


class Dribble(io.RawIOBase):
    """A stream that gives its bytes in pieces of the sizes it was told, whatever is asked for."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._left, self._sizes, self._turn = memoryview(data), sizes, 0

    def readable(self) -> bool:
        return True

    def read(self, most: int = -1) -> bytes:
        size = self._sizes[self._turn % len(self._sizes)]
        self._turn += 1
        piece = self._left[: min(size, most)]
        self._left = self._left[len(piece) :]
        return bytes(piece)


def _stream(data: bytes, sizes: list[int] | None = None) -> BinaryIO:
    return cast(BinaryIO, Dribble(data, sizes or [1 << 16]))


def _bare(samples: np.ndarray) -> bytes:
    return np.round(samples * 32767).astype("<i2").tobytes()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(0, 3000),
    block=st.integers(1, 700),
    sizes=st.lists(st.integers(1, 999), min_size=1, max_size=5),
    channels=st.integers(1, 3),
)
def test_bare_samples(noise: np.ndarray, length: int, block: int, sizes: list[int], channels: int) -> None:
    samples = noise[: length * channels]
    data = _bare(samples)
    reader = PcmReader(_stream(data, sizes), block, rate=16000, channels=channels)
    blocks = list(reader)
    assert reader.rate == 16000
    assert all(len(found) == block for found in blocks[:-1])
    assert all(0 < len(found) <= block and found.dtype == np.float32 for found in blocks)
    expected = np.frombuffer(data, "<i2").reshape(-1, channels).mean(axis=1) / 32768
    np.testing.assert_allclose(np.concatenate([np.empty(0), *blocks]), expected, atol=1e-7)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_streams_are_decoded_as_files_are(subtype: str, channels: int, encode: Encode, noise: np.ndarray) -> None:
    import soundfile

    data = encode(noise.reshape(-1, channels), 22050, subtype=subtype)
    reader = PcmReader(_stream(data, [7, 1000]), 512)
    assert reader.rate == 22050
    expected, _ = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    np.testing.assert_allclose(np.concatenate(list(reader)), expected.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize("rate", [8000, 44100, 48000])
def test_resampled_as_a_whole_would_be(rate: int, noise: np.ndarray) -> None:
    data = _bare(noise)
    reader = PcmReader(_stream(data, [501, 3000]), 512, rate=rate, to=16000)
    assert reader.rate == 16000
    found = np.concatenate(list(reader))
    expected = resample((np.frombuffer(data, "<i2") / 32768).astype(np.float32), rate, 16000)
    assert abs(len(found) - len(expected)) <= 1
    shortest = min(len(found), len(expected))
    np.testing.assert_allclose(found[:shortest], expected[:shortest], atol=1e-5)


def test_unknown_length_goes_on_to_the_end(encode: Encode, noise: np.ndarray) -> None:
    data = bytearray(encode(noise))
    at = data.index(b"data") + 4
    for size in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x80"):
        data[at : at + 4] = size
        assert sum(map(len, PcmReader(_stream(bytes(data)), 512))) == len(noise)


def test_what_follows_the_samples_is_not_read(encode: Encode, noise: np.ndarray) -> None:
    data = encode(noise) + b"LIST\x08\0\0\0INFOabcd"
    assert sum(map(len, PcmReader(_stream(data), 512))) == len(noise)


def test_blocks_come_before_the_stream_has_ended(noise: np.ndarray) -> None:
    reading, writing = os.pipe()
    data, first = _bare(noise), threading.Event()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data[:4000])
            pipe.flush()
            assert first.wait(timeout=60)
            pipe.write(data[4000:])

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb") as pipe:
        blocks = iter(PcmReader(pipe, 500, rate=16000))
        assert len(next(blocks)) == 500  # nothing else will be written before this is here
        first.set()
        assert sum(map(len, blocks)) == len(noise) - 500
    writer.join()


def test_memory_is_bounded() -> None:
    class Endless(io.RawIOBase):
        left = 64 << 20

        def readable(self) -> bool:
            return True

        def read(self, most: int = -1) -> bytes:
            given = min(most, self.left)
            self.left -= given
            return bytes(given)

    reader = PcmReader(cast(BinaryIO, Endless()), 512, rate=48000, channels=2, to=16000)
    tracemalloc.start()
    assert sum(map(len, reader)) == pytest.approx((64 << 20) / 12, abs=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends within its WAV header"),
        (b"fLaC" + bytes(100), "is not a WAV stream"),
        (b"RIFF\0\0\0\0WAVEjunk\xff\xff\xff\x7f" + bytes(100), "header is damaged"),
        (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd", "header is damaged"),
        (b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 200_000, "header is damaged"),
        (b"RIFF\0\0\0\0WAVEfmt \x04\0\0\0abcd", "header is damaged"),
    ],
)
def test_other_streams_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        PcmReader(_stream(data), 512, what="sound")
    assert caught.value.param == "sound"


def test_other_encodings_are_refused(encode: Encode, noise: np.ndarray) -> None:
    with pytest.raises(MediaError, match="encoding 6 with 8 bits"):
        PcmReader(_stream(encode(noise, subtype="ALAW")), 512)
    with pytest.raises(MediaError, match="sample rate of 10 Hz"):
        PcmReader(_stream(b""), 512, rate=10)
    with pytest.raises(MediaError, match="0 channels"):
        PcmReader(_stream(b""), 512, rate=16000, channels=0)


def test_streams_that_end_early(encode: Encode, noise: np.ndarray) -> None:
    reader = iter(PcmReader(_stream(encode(noise)[:-100]), 30000))
    assert len(next(reader)) == 30000
    with pytest.raises(MediaError, match="cut short: 100 of 64000 bytes of samples are missing"):
        next(reader)
    with pytest.raises(MediaError, match="ends within a sample"):
        list(PcmReader(_stream(b"abc"), 512, rate=16000))


def test_streams_of_something_else() -> None:
    with pytest.raises(MediaError, match="gives str where it is read"):
        list(PcmReader(cast(BinaryIO, io.StringIO("text")), 512, rate=16000))
    closed = io.BytesIO(b"abcd")
    closed.close()
    with pytest.raises(MediaError, match=r"cannot be read: .*closed"):
        list(PcmReader(closed, 512, rate=16000))


def test_samples_that_are_no_numbers(encode: Encode) -> None:
    data = encode(np.array([0, np.nan], np.float32), subtype="FLOAT")
    with pytest.raises(MediaError, match="no finite numbers"):
        list(PcmReader(_stream(data), 512))

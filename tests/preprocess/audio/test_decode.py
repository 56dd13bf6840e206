"""What a request may give as a sound, and how what cannot be taken is refused."""

from __future__ import annotations

import base64
import io
import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.programs import Program

# and how exactly each keeps samples (largest difference; None: lossy)
FORMATS = [
    ("WAV", "PCM_16", 2**-15),
    ("WAV", "PCM_24", 2**-23),
    ("WAV", "PCM_32", 2**-24),
    ("WAV", "FLOAT", 0),
    ("WAV", "PCM_U8", 2**-7),
    ("RF64", "PCM_16", 2**-15),
    ("FLAC", "PCM_16", 2**-15),
    ("FLAC", "PCM_24", 2**-23),
    ("OGG", "VORBIS", None),
    ("OGG", "OPUS", None),
    ("MP3", "MPEG_LAYER_III", None),
]
Encode = Callable[..., bytes]


@pytest.fixture(scope="module")
def decode(make_program: Callable[[Any], Program]) -> Callable[..., dict[str, Any]]:
    def run(source: Any, limits: str = "{}") -> dict[str, Any]:
        return make_program(f"[{{decode: {limits}}}]").run(source, {}, param="audio")

    return run


Decode = Callable[..., dict[str, Any]]


def _stereo(rate: int) -> np.ndarray:
    time = np.arange(rate) / rate
    return np.stack([0.4 * np.sin(2 * np.pi * 200 * time), 0.2 * np.cos(2 * np.pi * 330 * time)], 1).astype(np.float32)


@pytest.mark.parametrize(("kind", "subtype", "exact"), FORMATS)
@pytest.mark.parametrize("rate", [8000, 16000, 48000])
def test_formats_rates_and_channels(
    kind: str, subtype: str, exact: float | None, rate: int, encode: Encode, decode: Decode
) -> None:
    samples = _stereo(rate)
    item = decode(encode(samples, rate, kind, subtype))
    assert item["samples"].dtype == np.float32
    assert item["samples"].shape == (2, rate)
    assert item["seconds"] == 1
    differences = np.abs(item["samples"] - samples.T)
    if exact is None:
        assert np.sqrt(np.mean(differences**2)) < 0.03
    else:
        assert differences.max() <= exact


@pytest.mark.parametrize("channels", [1, 2, 3, 6, 8])
def test_channel_counts(channels: int, encode: Encode, decode: Decode) -> None:
    samples = np.linspace(-0.5, 0.5, 300 * channels, dtype=np.float32).reshape(300, channels)
    np.testing.assert_array_equal(decode(encode(samples, subtype="FLOAT"))["samples"], samples.T)


def test_every_kind_of_source_gives_the_same(encode: Encode, decode: Decode, tmp_path: Path, noise: np.ndarray) -> None:
    data = encode(noise)
    path = tmp_path / "sound without a suffix"
    path.write_bytes(data)
    expected = decode(data)["samples"]
    url = "data:audio/wav;base64," + base64.b64encode(data).decode()
    sources = [path, str(path), bytearray(data), memoryview(data), url, io.BytesIO(data)]
    with path.open("rb") as file:
        for source in [*sources, file]:
            np.testing.assert_array_equal(decode(source)["samples"], expected)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([0.5, -2.0], np.float32), [[0.5, -2.0]]),
        (np.array([0.5, -0.25], np.float64), [[0.5, -0.25]]),
        (np.array([0.5, -0.25], np.float16), [[0.5, -0.25]]),
        ([0.5, -0.25], [[0.5, -0.25]]),
        (np.array([16384, -32768], np.int16), [[0.5, -1.0]]),
        (np.array([2**30, -(2**31)], np.int32), [[0.5, -1.0]]),
        (np.array([192, 0, 128], np.uint8), [[0.5, -1.0, 0.0]]),
        (np.array([[0.5, 0.25], [-1.0, 0.0]], np.float32), [[0.5, 0.25], [-1.0, 0.0]]),
    ],
)
def test_decoded_samples(samples: Any, expected: list[list[float]], decode: Decode) -> None:
    item = decode((samples, 8000))
    assert item["samples"].tolist() == expected
    assert item["seconds"] == len(expected[0]) / 8000
    assert decode(SimpleNamespace(samples=samples, rate=8000))["samples"].tolist() == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ((np.zeros(0, np.float32), 8000), "audio has no samples"),
        ((np.zeros((2, 3, 4), np.float32), 8000), r"samples of shape \[2, 3, 4\]"),
        ((np.zeros((8000, 2), np.float32), 8000), r"samples of shape \[8000, 2\]"),
        ((np.zeros(8, np.complex64), 8000), "samples of type complex64"),
        ((np.zeros(8, np.int64), 8000), "samples of type int64"),
        (([[1.0, 2.0], [1.0]], 8000), "make no array"),
        (("abc", 8000), "samples of type str"),
        ((np.zeros(8, np.float32), 8000.0), "rate of type float"),
        ((np.zeros(8, np.float32), 0), "sample rate of 0 Hz"),
        ((np.zeros(8, np.float32), -8000), "sample rate of -8000 Hz"),
        ((np.zeros(8, np.float32), 10**9), "sample rate of 1000000000 Hz"),
        ((np.array([0.0, np.nan], np.float32), 8000), "no finite numbers"),
        ((np.array([1e300]), 8000), "no finite numbers"),
        (b"", "audio is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "in no format that can be read"),
        (b"plain text", "in no format that can be read"),
        ("/no/such/file.wav", "there is no file"),
        ("https://example.org/a.wav", "an address, which is not opened"),
        (17, "of type int"),
    ],
)
def test_what_is_refused(source: Any, message: str, decode: Decode) -> None:
    with pytest.raises(MediaError, match=message) as caught:
        decode(source)
    assert caught.value.param == "audio"


def test_folders_and_devices_are_refused(decode: Decode, tmp_path: Path) -> None:
    for source in (tmp_path, "/dev/zero"):
        with pytest.raises(MediaError, match="not a regular file"):
            decode(source)


def test_limits(encode: Encode, decode: Decode, noise: np.ndarray) -> None:
    data = encode(noise)
    assert decode(data, "{max_seconds: 2}")["seconds"] == 2
    assert decode(data, f"{{max_bytes: {len(data)}}}")["seconds"] == 2
    with pytest.raises(MediaError, match=r"audio is 2\.0 s long, and at most 1\.99 s are taken"):
        decode(data, "{max_seconds: 1.99}")
    with pytest.raises(MediaError, match=f"more than {len(data) - 1} bytes"):
        decode(data, f"{{max_bytes: {len(data) - 1}}}")
    with pytest.raises(MediaError, match=r"2\.0 s long"):
        decode((noise, 16000), "{max_seconds: 1.99}")


def test_samples_that_are_no_numbers(encode: Encode, decode: Decode) -> None:
    for value in (np.nan, np.inf):
        with pytest.raises(MediaError, match="no finite numbers"):
            decode(encode(np.array([0, value, 0], np.float32), subtype="FLOAT"))


def test_wav_of_unknown_length_goes_on_to_its_end(encode: Encode, decode: Decode, noise: np.ndarray) -> None:
    data = bytearray(encode(noise))
    at = data.index(b"data") + 4
    for size in (0xFFFFFFFF, 0x7FFFF000, 0x80000000):
        data[at : at + 4] = struct.pack("<I", size)
        assert decode(bytes(data))["samples"].shape == (1, len(noise))


def test_chunks_before_and_behind_the_samples(encode: Encode, decode: Decode, noise: np.ndarray) -> None:
    data = encode(noise)
    at = data.index(b"data")
    note = b"LIST" + struct.pack("<I", 7) + b"a note!\0"  # chunks have an even length
    odd = data[:at] + note + data[at:] + note
    np.testing.assert_array_equal(decode(odd)["samples"], decode(data)["samples"])


def _without_first_frame(mp3: bytes) -> bytes:
    """An MP3 file without the frame that tells its length."""
    return mp3[mp3.index(mp3[:2], 4) :]


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize("loud_first", [True, False])
@pytest.mark.parametrize("rate", [11025, 16000, 44100])
@pytest.mark.parametrize("tag", [b"", b"ID3\x04\0\0\0\0\x02\x05" + bytes(261)])
def test_mp3_without_a_length_is_read_to_its_end(
    mode: str, loud_first: bool, rate: int, tag: bytes, encode: Encode, decode: Decode
) -> None:
    # Of variable bit rate, so that the first frame says nothing of how many there are.
    parts = [np.random.default_rng(0).normal(0, 0.3, 4 * rate), np.zeros(4 * rate)]
    samples = np.concatenate(parts if loud_first else parts[::-1]).astype(np.float32)
    mp3 = encode(samples, rate, "MP3", "MPEG_LAYER_III", bitrate_mode=mode, compression_level=0.5)
    item = decode(tag + _without_first_frame(mp3) + b"TAG" + bytes(125))
    assert item["seconds"] == pytest.approx(8, abs=2 * 1152 / rate)
    found = item["samples"][0]
    halves = np.square(found[rate : 3 * rate]).mean(), np.square(found[5 * rate : 7 * rate]).mean()
    assert (halves[0] > 100 * halves[1]) == loud_first


def test_flac_without_a_length_is_refused(encode: Encode, decode: Decode, noise: np.ndarray) -> None:
    data = bytearray(encode(noise, kind="FLAC"))
    data[21] &= 0xF0  # the number of samples has 36 bits
    data[22:26] = bytes(4)
    with pytest.raises(MediaError, match="a FLAC stream whose header has no length"):
        decode(bytes(data))

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import soundfile

from genai_pipeline.errors import OperationFailedError, PackageError, RequestError
from genai_pipeline.ops.media import Audio, Image, audio_of, images_of, wav_header


def tone(channels: int = 1) -> Any:
    samples = np.sin(np.arange(800, dtype=np.float32) / 10)
    return samples if channels == 1 else np.stack([samples, -0.5 * samples])


@pytest.mark.parametrize("channels", [1, 2])
def test_wav_is_read_back(channels: int, tmp_path: Path) -> None:
    audio = Audio(tone(channels), 8000)
    assert (audio.channels, audio.seconds) == (channels, 0.1)
    audio.save(tmp_path / "tone.wav")
    read, rate = soundfile.read(tmp_path / "tone.wav", dtype="float32")
    assert rate == 8000
    np.testing.assert_allclose(read.T, audio.samples, atol=1e-4)
    with wave.open(io.BytesIO(audio.wav())) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getnframes()) == (channels, 2, 800)


def test_what_is_too_loud_is_cut_off() -> None:
    assert np.frombuffer(Audio(np.array([2, -2, 0], np.float32), 1).pcm(), "<i2").tolist() == [32767, -32767, 0]


def test_a_stream_begins_with_a_header_of_unknown_length() -> None:
    header = wav_header(22050)
    assert header[:4] + header[8:16] == b"RIFFWAVEfmt "
    assert header[4:8] == header[40:44] == b"\xff\xff\xff\xff"
    assert header[:4] == Audio(tone(), 22050).wav()[:4]
    assert len(header) == 44


@pytest.mark.parametrize("shape", [(800,), (1, 800), (1, 1, 800), (1, 1, 1, 800)])
def test_samples_of_a_graph_become_a_sound(shape: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(audio_of(tone().reshape(shape), 8000).samples, tone())


def test_whole_numbers_are_scaled_by_their_type() -> None:
    assert audio_of(np.array([-32768, 0, 16384], np.int16), 1).samples.tolist() == [-1, 0, 0.5]
    assert audio_of(np.array([0, 128, 192], np.uint8), 1).samples.tolist() == [-1, 0, 0.5]
    assert audio_of(np.zeros((1, 2, 5)), 1).channels == 2


@pytest.mark.parametrize("value", [np.zeros((2, 2, 5)), np.array([np.nan]), np.float32(1), np.array(["a"])])
def test_what_is_no_sound(value: Any) -> None:
    with pytest.raises(OperationFailedError, match="no sound"):
        audio_of(value, 8000)


def pixels() -> Any:
    return np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def test_png_is_read_back_exactly(tmp_path: Path) -> None:
    image = Image(pixels())
    assert image.size == (6, 4)
    image.save(tmp_path / "a.png")
    with PIL.Image.open(tmp_path / "a.png") as read:
        assert (read.mode, read.size) == ("RGB", (6, 4))
        np.testing.assert_array_equal(np.asarray(read), pixels())


def test_jpeg_is_read_back_nearly(tmp_path: Path) -> None:
    flat = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    Image(flat).save(tmp_path / "a.jpg")
    with PIL.Image.open(tmp_path / "a.jpg") as read:
        assert np.abs(np.asarray(read).astype(int) - flat).max() < 6
    noisy = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    assert len(Image(noisy).jpeg(20)) < len(Image(noisy).jpeg(90))


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.gif"):
        Image(pixels()).save(tmp_path / "a.gif")


@pytest.mark.parametrize(
    ("layout", "order"), [("nchw", (2, 0, 1)), ("chw", (2, 0, 1)), ("nhwc", (0, 1, 2)), ("hwc", (0, 1, 2))]
)
def test_numbers_of_a_graph_become_a_picture(layout: Any, order: tuple[int, ...]) -> None:
    values = pixels().transpose(order).astype(np.float32) / 127.5 - 1
    values = values[np.newaxis] if layout.startswith("n") else values
    (image,) = images_of(values, layout, (-1, 1))
    np.testing.assert_array_equal(image.pixels, pixels())


def test_grey_becomes_three_channels_and_levels_are_cut_off() -> None:
    one, two = images_of(np.array([[[[0.0, 2.0]]], [[[-1.0, 0.5]]]]))
    assert one.pixels.tolist() == [[[0, 0, 0], [255, 255, 255]]]
    assert two.pixels.tolist() == [[[0, 0, 0], [128, 128, 128]]]


@pytest.mark.parametrize("value", [np.zeros((1, 2, 4, 4)), np.zeros(4), np.full((1, 3, 2, 2), np.nan)])
def test_what_is_no_picture(value: Any) -> None:
    with pytest.raises(OperationFailedError, match="no picture"):
        images_of(value)


def test_writers_give_files(call: Any) -> None:
    picture = pixels().transpose(2, 0, 1)[np.newaxis]
    assert call("png", {"image": picture}, range=[0, 255])["result"] == Image(pixels()).png()
    assert call("jpeg", {"image": picture}, range=[0, 255], quality=50)["result"][:2] == b"\xff\xd8"
    assert call("wav", {"samples": tone()[np.newaxis]}, rate=8000)["result"] == Audio(tone(), 8000).wav()
    found = call("npy", {"value": pixels()})["result"]
    np.testing.assert_array_equal(np.load(io.BytesIO(found)), pixels())


def test_timed_text_and_values_are_written(call: Any) -> None:
    segments = [{"start": 0.0, "end": 1.5, "text": "é"}]
    assert "00:00:00,000 --> 00:00:01,500\né" in call("srt", {"segments": segments})["result"].decode()
    assert call("vtt", {"segments": segments})["result"].startswith(b"WEBVTT")
    value = {"a": [np.float32(0.5), {"b": np.arange(3)}], "c": None, "d": "é"}
    assert json.loads(call("json", {"value": value})["result"]) == {"a": [0.5, {"b": [0, 1, 2]}], "c": None, "d": "é"}
    assert call("json", {"value": [1]}, indent=1)["result"] == b"[\n 1\n]"


@pytest.mark.parametrize(
    ("name", "inputs", "params", "error"),
    [
        ("png", {"image": np.zeros((2, 3, 4, 4))}, {}, RequestError),
        ("png", {"image": np.zeros((1, 3, 4, 4))}, {"range": [1, 1]}, PackageError),
        ("srt", {"segments": [{"start": 0}]}, {}, RequestError),
        ("json", {"value": {"a": float("nan")}}, {}, RequestError),
        ("json", {"value": object()}, {}, RequestError),
    ],
)
def test_what_cannot_be_written(call: Any, name: str, inputs: Any, params: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="here"):
        call(name, inputs, **params)

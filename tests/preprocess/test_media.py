"""Where bytes of media come from, what is refused before anything is opened, and limits."""

from __future__ import annotations

import base64
import io
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from genai_pipeline.errors import MediaError
from genai_pipeline.preprocess.media import read_media

DATA = bytes(range(256)) * 3
LIMIT = len(DATA)


def refused(source: Any, limit: int = LIMIT) -> MediaError:
    with pytest.raises(MediaError) as caught:
        read_media(source, "images", limit)
    assert caught.value.param == "images"
    assert "images" in caught.value.message
    return caught.value


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sound 1.wav"
    path.write_bytes(DATA)
    return path


def test_every_source_gives_the_bytes(file: Path) -> None:
    with file.open("rb") as opened:
        sources = [file, str(file), DATA, bytearray(DATA), memoryview(DATA), io.BytesIO(DATA), opened, url(DATA)]
        assert [read_media(source, "images", LIMIT) for source in sources] == [DATA] * len(sources)


def test_every_source_keeps_the_limit(file: Path) -> None:
    with file.open("rb") as opened:
        for source in (file, str(file), DATA, bytearray(DATA), memoryview(DATA), io.BytesIO(DATA), opened, url(DATA)):
            assert refused(source, LIMIT - 1).message == f"images has more than {LIMIT - 1} bytes"


def test_a_file_is_not_read_beyond_the_limit() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            piece = b"x" * min(size, 1000)
            self.given += len(piece)
            return piece

    endless = Endless()
    assert "more than 5000 bytes" in refused(endless, 5000).message
    assert endless.given == 5001


def test_links_to_files_are_followed(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_media(link, "images", LIMIT) == DATA


def test_only_regular_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    address = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        for path in (tmp_path, pipe, address, Path("/dev/zero"), Path("/dev/stdin")):
            error = refused(path)
            assert "is not a regular file" in error.message or "no file" in error.message, path


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.png"
    assert refused(missing).message == f"images: there is no file '{missing}'"
    assert "images" in refused("").message
    assert "cannot be read" in refused("a\0b").message
    assert "cannot be read" in refused("x" * 5000).message
    empty = tmp_path / "empty"
    empty.touch()
    for source in (empty, b"", io.BytesIO(), "data:image/png;base64,"):
        assert refused(source).message == "images is empty"
    assert "mode 'rb'" in refused(io.StringIO("text")).hint
    closed = io.BytesIO(DATA)
    closed.close()
    assert "closed" in refused(closed).message


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/secret.png",
        "HTTPS://example.com/secret.png",
        "http://169.254.169.254/latest/secret",
        "file:///etc/passwd",
        "ftp://localhost/secret",
        "gopher://[::1]/secret",
        "s3://bucket/secret",
    ],
)
def test_addresses_are_never_opened(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connected(*_: object, **__: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket, "socket", connected)
    monkeypatch.setattr(socket, "getaddrinfo", connected)
    error = refused(address)
    assert error.message == "images is an address, which is not opened"
    for part in ("secret", "127.0.0.1", "passwd", "example", "169.254"):
        assert part not in f"{error.message} {error.hint}"


def test_data_urls() -> None:
    encoded = base64.b64encode(DATA).decode()
    lines = "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))
    for text in (f"data:;base64,{encoded}", f"DATA:image/PNG;charset=x;BASE64,{encoded}", f"data:a/b;base64,{lines}"):
        assert read_media(text, "images", LIMIT) == DATA
    assert read_media("data:text/plain,a%20b%00", "images", 10) == b"a b\0"
    assert read_media(f"data:;base64,{encoded.replace('+', '%2B')}", "images", LIMIT) == DATA


def test_broken_data_urls_are_refused_without_their_contents() -> None:
    for text in ("data:image/png;base64,secret!!", "data:image/png;base64,secre", "data:image/png;base64,s\u00e9cret"):
        error = refused(text)
        assert "not base64" in error.message
        assert "cret" not in f"{error.message} {error.hint}"
    assert "without a comma" in refused("data:image/png;base64").message
    assert "without a comma" in refused("data:" + "x" * 5000 + ",abc").message


def test_a_long_data_url_is_refused_before_it_is_decoded() -> None:
    assert (
        "more than 100 bytes" in refused("data:;base64," + "!" * 10_000, 100).message
    )  # no base64, but too long first
    assert "more than 10 bytes" in refused("data:,0123456789abc", 10).message


@pytest.mark.parametrize("source", [None, 3, ["a.png"], {"url": "a.png"}, object()])
def test_other_objects(source: Any) -> None:
    error = refused(source)
    assert type(source).__name__ in error.message
    assert error.hint == "give a path, bytes, a data: URL or a binary file object"

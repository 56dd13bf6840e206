"""CTranslate2's file format: what is read, and what a damaged file is told."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.ctranslate2.config import read_config
from genai_pipeline.importers.ctranslate2.reader import open_model


def opened(tmp_path: Path, content: bytes) -> Any:
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    return open_model(path)


def test_variables_and_aliases_are_read_as_they_were_written(tmp_path: Path, tiny_whisper: Any) -> None:
    file = opened(tmp_path, tiny_whisper.file.pack())
    for name, value in tiny_whisper.file.variables.items():
        assert np.array_equal(file.variables[name].data, value)
    assert file.variables["decoder/projection/weight"] is file.variables["decoder/embeddings/weight"]
    assert file.number("decoder/activation") == 3
    assert file.count("decoder/layer_{}/ffn/linear_0/weight") == 2
    assert file.tensor("encoder/conv1/weight", 32, -1, 3).dtype == np.float32


def test_bfloat16_is_the_upper_half_of_float32(tmp_path: Path, tiny_whisper: Any) -> None:
    values = np.array([1.5, -2.0, 0.0078125, 3e38], np.float32)  # the first three have few bits
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    content = tiny_whisper.file.having(extra=upper.view(np.int16)).pack()
    at = content.index(b"extra\0") + len(b"extra\0") + 1 + 4  # behind rank and size: the dtype
    file = opened(tmp_path, content[:at] + b"\5" + content[at + 1 :])
    assert np.array_equal(file.tensor("extra", 4)[:3], values[:3])


def test_every_cut_is_named(tmp_path: Path, tiny_whisper: Any) -> None:
    content = tiny_whisper.file.pack()
    for size in (*range(1, 200), *range(200, len(content), 997), len(content) - 1):
        with pytest.raises(ImportModelError, match="cut"):
            opened(tmp_path, content[:size])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content + b"\0", "1 bytes follow its end"),
        (lambda content: struct.pack("<I", 5) + content[4:], "not a CTranslate2 model of format 6: it begins with 5"),
        (lambda content: content.replace(b"decoder/alibi\0\0\1", b"decoder/alibi\0\0\7"), "dtype number 7"),
        (lambda content: content.replace(b"decoder/alibi\0\0\1", b"decoder/alibi\0\0\2"), "1 bytes for the shape"),
        (lambda content: content.replace(b"decoder/alibi\0\0\1", b"decoder/alibi\0\x09\1"), "has 9 axes"),
        (lambda content: content.replace(b"decoder/alibi", b"decoder/alib\xff"), "is no text"),
        (lambda content: content.replace(b"decoder/pre_norm", b"encoder/pre_norm"), None),
    ],
)
def test_what_is_wrong_with_a_damaged_file(tmp_path: Path, tiny_whisper: Any, change: Any, message: str | None) -> None:
    content = change(tiny_whisper.file.pack())
    if message is None:
        assert opened(tmp_path, content).number("decoder/pre_norm", default=1) == 1
        return
    with pytest.raises(ImportModelError, match=message):
        opened(tmp_path, content)


def test_a_variable_that_is_there_twice(tmp_path: Path, tiny_whisper: Any) -> None:
    content = tiny_whisper.file.pack().replace(b"encoder/num_heads", b"decoder/num_heads")
    with pytest.raises(ImportModelError, match="'decoder/num_heads' is there twice"):
        opened(tmp_path, content)


@pytest.mark.parametrize("content", [b"", b"\6\0"])
def test_files_that_are_no_models(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ImportModelError):
        opened(tmp_path, content)
    with pytest.raises(ImportModelError, match="no such file"):
        open_model(tmp_path / "other.bin")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder__activation": np.array(0, np.int8)}, "'decoder/activation' is 0; supported: 3"),
        ({"decoder__alibi": np.array(1, np.int8)}, "'decoder/alibi' is 1; supported: 0"),
        ({"decoder__num_heads": np.array(5, np.int16)}, "5 heads do not fit a width of 32"),
        ({"encoder__num_heads": np.array(4, np.int16)}, "2 heads do not fit"),
        ({"decoder__num_heads": None}, "'decoder/num_heads' is missing"),
        ({"decoder__num_heads": np.array([2, 2], np.int16)}, "is not a single integer"),
        ({"decoder__embeddings__weight": np.zeros(4, np.float16)}, "expected a matrix"),
        (
            {"encoder__conv1__weight": np.zeros((32, 8, 5), np.float16)},
            r"has shape \[32, 8, 5\], expected \[32, any, 3\]",
        ),
        ({"encoder__conv1__weight": np.zeros((32, 8, 3), np.int8)}, "stored as int8"),
    ],
)
def test_models_that_are_not_supported(tmp_path: Path, tiny_whisper: Any, changes: Any, message: str) -> None:
    file = opened(tmp_path, tiny_whisper.file.having(**changes).pack())
    with pytest.raises(ImportModelError, match=message):
        read_config(file)

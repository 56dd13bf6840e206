"""Opening GGUF files, whole and damaged, and reading blocks as codes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.gguf.matrices import encode_exact, encode_fast
from genai_pipeline.importers.gguf.reader import GgufTensor, open_gguf, stack_rows
from genai_pipeline.importers.graphs.matrices import BLOCK, BlockMatrix, DenseMatrix, round_to_8_bits


def decoded(matrix: BlockMatrix) -> np.ndarray:
    """What the stored form means, read back from the packed bytes."""
    packed = matrix.packed()
    codes = packed if matrix.bits == 8 else np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:2], -1)
    values = (codes.astype(np.float32) - 2 ** (matrix.bits - 1)) * matrix.scales[:, :, None]
    if matrix.offsets is not None:
        values = values + matrix.offsets[:, :, None]
    return values.reshape(len(packed), -1)


def stored(tmp_path: Path, tiny_model: Any, kind: str) -> GgufTensor:
    path = tiny_model(types={"attn_output.weight": kind}).write(tmp_path / "tiny.gguf")
    return open_gguf(path).tensors["blk.0.attn_output.weight"]


@pytest.mark.parametrize(("kind", "bits"), [("Q4_0", 4), ("Q4_1", 4), ("Q8_0", 8)])
def test_stored_codes_stand_for_the_dequantised_values(tmp_path: Path, tiny_model: Any, kind: str, bits: int) -> None:
    tensor = stored(tmp_path, tiny_model, kind)
    for matrix in [encode_fast([tensor]), *([encode_exact([tensor])] if bits == 4 else [])]:
        assert isinstance(matrix, BlockMatrix)
        assert matrix.bits == bits
        np.testing.assert_allclose(decoded(matrix), tensor.dequantized(), atol=1e-6)


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "F16", "BF16", "F32"])
def test_other_types_become_values_when_exact_and_8_bit_codes_when_fast(
    tmp_path: Path, tiny_model: Any, kind: str
) -> None:
    tensor = stored(tmp_path, tiny_model, kind)
    exact, fast = encode_exact([tensor]), encode_fast([tensor])
    assert isinstance(exact, DenseMatrix)
    assert isinstance(fast, BlockMatrix)
    np.testing.assert_array_equal(exact.values, tensor.dequantized())
    blocks = tensor.dequantized().reshape(tensor.shape[0], -1, BLOCK)
    allowed = np.abs(blocks).max(axis=2, keepdims=True) / 127 * 0.501
    assert (np.abs(decoded(fast).reshape(blocks.shape) - blocks) <= allowed).all()


def test_8_bit_codes_become_values_when_exact(tmp_path: Path, tiny_model: Any) -> None:
    tensor = stored(tmp_path, tiny_model, "Q8_0")
    matrix = encode_exact([tensor])
    assert isinstance(matrix, DenseMatrix)
    np.testing.assert_array_equal(matrix.values, tensor.dequantized())


def test_rounding_keeps_zero_blocks_and_pads_with_zeros() -> None:
    values = np.zeros((2, 40), dtype=np.float32)
    values[1, 33] = -3.0
    matrix = round_to_8_bits(values)
    assert matrix.codes.shape == (2, 64)
    np.testing.assert_array_equal(decoded(matrix)[:, :40], values)
    np.testing.assert_array_equal(decoded(matrix)[:, 40:], 0)


def test_rows_can_be_taken_and_stacked_without_touching_codes(tmp_path: Path, tiny_model: Any) -> None:
    tensor = stored(tmp_path, tiny_model, "Q4_1")
    rows = np.arange(tensor.shape[0])[::-1].copy()
    both = stack_rows([tensor, tensor.take_rows(rows)])
    values = tensor.dequantized()
    np.testing.assert_array_equal(both.dequantized(), np.concatenate([values, values[::-1]]))


def test_metadata_comes_as_plain_values(tmp_path: Path, tiny_model: Any) -> None:
    file = open_gguf(tiny_model().write(tmp_path / "tiny.gguf"))
    assert file.metadata["general.architecture"] == "llama"
    assert file.metadata["llama.block_count"] == 2
    assert file.metadata["tokenizer.ggml.tokens"][:2] == ["<|end|>", "<|start|>"]
    assert file.tensors["token_embd.weight"].shape == (97, 64)


@pytest.mark.parametrize("percent", [0, 1, 2, 5, 20, 50, 90, 99])
def test_a_cut_file_is_named(tmp_path: Path, tiny_model: Any, percent: int) -> None:
    whole = tiny_model().write(tmp_path / "tiny.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: len(whole) * percent // 100])
    said = r"the file is cut: it has \d+ bytes and should go on to byte \d+" if percent else "not a GGUF file"
    with pytest.raises(ImportModelError, match=rf"cut\.gguf: {said}"):
        open_gguf(cut)


@pytest.mark.parametrize(
    ("tensors", "keys"), [(2**60, 1), (1, 2**60), (2**64 - 1, 2**64 - 1)], ids=["tensors", "keys", "both"]
)
def test_absurd_counts_are_named(tmp_path: Path, tensors: int, keys: int) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + bytes(64))
    with pytest.raises(ImportModelError, match=r"odd\.gguf: (damaged GGUF file|the file is cut: it has 88 bytes)"):
        open_gguf(path)


def test_a_file_of_another_version_is_damaged_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 99, 0, 0) + bytes(64))
    with pytest.raises(ImportModelError, match=r"odd\.gguf: damaged GGUF file \(ValueError: .*version 99"):
        open_gguf(path)


def test_a_folder_is_named_with_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(ImportModelError, match="this is a folder, not a GGUF file"):
        open_gguf(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(ImportModelError) as caught:
        open_gguf(tmp_path)
    assert str(tmp_path / "x.gguf") in caught.value.hint


def test_other_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(ImportModelError, match=r"model\.bin: not a GGUF file"):
        open_gguf(path)
    with pytest.raises(ImportModelError, match=r"absent\.gguf: no such file"):
        open_gguf(tmp_path / "absent.gguf")

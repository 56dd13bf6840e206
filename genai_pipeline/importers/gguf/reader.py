"""GGUF files as typed values: metadata, and tensors over the memory-mapped file. The only module that uses ``gguf``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.graphs.matrices import Array, FloatArray

_PLAIN_TYPES = ("F32", "F16", "BF16", "F64")
_BLOCK_TYPES = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *(
        "IQ4_NL",
        "IQ4_XS",
        "IQ3_S",
        "IQ3_XXS",
        "IQ2_S",
        "IQ2_XS",
        "IQ2_XXS",
        "IQ1_S",
        "IQ1_M",
        "TQ1_0",
        "TQ2_0",
        "MXFP4",
    ),
)
SUPPORTED_TYPES = _PLAIN_TYPES + _BLOCK_TYPES
# What a damaged file makes GGUFReader raise: its own refusals are ValueErrors, the others come from numpy and enum
# look-ups on garbage.
_DAMAGE = (ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError, MemoryError, UnicodeError)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor as stored: ``data`` has the stored bytes (or plain numbers) row by row, ``shape`` counts elements."""

    name: str
    ggml_type: str
    shape: tuple[int, ...]  # outermost first, e.g. [outputs, inputs]
    data: Array

    @property
    def nbytes(self) -> int:
        """Bytes the tensor takes in the file."""
        return int(self.data.nbytes)

    def take_rows(self, rows: npt.NDArray[np.int64]) -> GgufTensor:
        """The tensor with its outermost axis picked by ``rows``; blocks never span rows, so codes stay as they are."""
        return replace(self, shape=(len(rows), *self.shape[1:]), data=self.data[rows])

    def dequantized(self) -> FloatArray:
        """The values as float32, in the tensor's shape."""
        if self.ggml_type in ("F32", "F16", "F64"):
            return np.asarray(self.data, dtype=np.float32).reshape(self.shape)
        values = dequantize(self.data, GGMLQuantizationType[self.ggml_type])
        return np.asarray(values, dtype=np.float32).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """An opened file: ``metadata`` by key as plain Python values, ``tensors`` by name."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GgufTensor]

    def require(self, key: str) -> Any:
        """The metadata value of ``key``; raises ``ImportModelError`` when the file does not have it."""
        if key not in self.metadata:
            raise ImportModelError(f"{self.path}: metadata key {key!r} is missing", hint="convert the model again")
        return self.metadata[key]

    def tensor(self, name: str) -> GgufTensor:
        """The tensor ``name``; its presence has been checked by then."""
        return self.tensors[name]


class _CutError(Exception):
    """The file ends before something that it says it has."""


class _BoundedReader(GGUFReader):
    """A reader that says so when it would read beyond the end of the file, where numpy complains of shapes."""

    def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise _CutError(f"it has {len(self.data)} bytes and should go on to byte {end} at least")
        return super()._get(offset, dtype, count, override_order)


def check_file(path: Path) -> None:
    """Raises ``ImportModelError`` unless ``path`` is a file that begins as GGUF files do."""
    if path.is_dir():
        models = sorted(file.name for file in path.glob("*.gguf"))
        hint = f"give the file in it, e.g. {path / models[0]}" if models else "give the path of a .gguf file"
        raise ImportModelError(f"{path}: this is a folder, not a GGUF file", hint=hint)
    if not path.exists():
        raise ImportModelError(f"{path}: no such file", hint="give the path of a .gguf file")
    if not path.is_file():
        raise ImportModelError(f"{path}: not a regular file", hint="give the path of a .gguf file")
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
    except OSError as error:
        raise ImportModelError(f"{path}: cannot be read: {error.strerror}", hint="see to its access rights") from error
    if magic != b"GGUF":
        raise ImportModelError(
            f"{path}: not a GGUF file (it does not start with 'GGUF')", hint="give the path of a .gguf file"
        )


def open_gguf(path: Path) -> GgufFile:
    """Opens ``path``; raises ``ImportModelError`` when it is no whole GGUF file."""
    check_file(path)
    try:
        reader = _BoundedReader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {str(tensor.name): _tensor(tensor) for tensor in reader.tensors}
    except _CutError as error:
        raise ImportModelError(f"{path}: the file is cut: {error}", hint="fetch the file again") from error
    except _DAMAGE as error:
        raise ImportModelError(
            f"{path}: damaged GGUF file ({type(error).__name__}: {error})", hint="fetch the file again"
        ) from error
    return GgufFile(path=path, metadata=metadata, tensors=tensors)


def _tensor(tensor: Any) -> GgufTensor:
    shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
    return GgufTensor(name=str(tensor.name), ggml_type=tensor.tensor_type.name, shape=shape, data=tensor.data)


def stack_rows(tensors: Sequence[GgufTensor]) -> GgufTensor:
    """Tensors of one type and row length as one, rows one after the other; values and codes are untouched."""
    first = tensors[0]
    assert all((t.ggml_type, t.shape[1:]) == (first.ggml_type, first.shape[1:]) for t in tensors)
    if len(tensors) == 1:
        return first
    rows = sum(tensor.shape[0] for tensor in tensors)
    data = np.concatenate([tensor.data for tensor in tensors])
    return GgufTensor("+".join(t.name for t in tensors), first.ggml_type, (rows, *first.shape[1:]), data)


def block_geometry(ggml_type: str) -> tuple[int, int]:
    """Elements and bytes of one block of ``ggml_type``."""
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[ggml_type]]
    return int(elements), int(size)

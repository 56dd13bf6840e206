"""CTranslate2's ``model.bin`` as typed values: scalars and tensors over the memory-mapped file, every size checked.

The format, all numbers little-endian: version (uint32), the model's kind (text) and its revision (uint32), the number
of variables (uint32), each a name (text), rank (uint8), sizes (uint32 each), dtype (uint8), bytes (uint32) and content;
then the number of aliases (uint32), each a name and the variable it stands for. A text is its length (uint16, with the
zero byte that ends it) and its bytes.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.graphs.matrices import FloatArray

VERSION = 6  # of the file format; older ones tell dtypes in other ways
_MOST_AXES = 8
_AGAIN = "fetch the file again"
# In the order of the format's numbers. numpy has no bfloat16: its bits are the upper half of a float32's.
_DTYPES = (
    ("float32", "<f4"),
    ("int8", "i1"),
    ("int16", "<i2"),
    ("int32", "<i4"),
    ("float16", "<f2"),
    ("bfloat16", "<u2"),
)
_FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable as stored; ``data`` has its shape and reads the mapped file (bfloat16: as uint16)."""

    name: str
    dtype: str
    data: npt.NDArray[np.generic]

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, outermost first, e.g. [outputs, inputs]."""
        return self.data.shape

    def values(self) -> FloatArray:
        """The values as float32."""
        if self.dtype == "bfloat16":
            return (self.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return self.data.astype(np.float32)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """An opened file: ``kind`` is what the model is, e.g. "WhisperSpec"; aliases are variables too."""

    path: Path
    kind: str
    variables: Mapping[str, Variable]

    def tensor(self, name: str, *shape: int) -> FloatArray:
        """A float tensor in float32. Raises ImportModelError when it is missing, quantised or shaped otherwise.

        A size of -1 is any.
        """
        variable = self._variable(name)
        if variable.dtype not in _FLOATS:
            raise ImportModelError(
                f"{self.path}: '{name}' is stored as {variable.dtype}; supported: {', '.join(_FLOATS)}",
                hint="convert the model without quantization",
            )
        fits = len(shape) == len(variable.shape) and all(
            want in (-1, got) for want, got in zip(shape, variable.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size == -1 else str(size) for size in shape)
            raise ImportModelError(f"{self.path}: '{name}' has shape {list(variable.shape)}, expected [{wanted}]")
        return variable.values()

    def number(self, name: str, default: int | None = None) -> int:
        """The integer ``name``. Raises ImportModelError when it is missing without a default, or no single integer."""
        if default is not None and name not in self.variables:
            return default
        variable = self._variable(name)
        if variable.data.size != 1 or variable.dtype in _FLOATS:
            raise ImportModelError(f"{self.path}: '{name}' is not a single integer")
        return int(variable.data.reshape(-1).astype(np.int64)[0])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a variable. Raises ImportModelError when it is missing."""
        return self._variable(name).shape

    def count(self, pattern: str) -> int:
        """How many numbers from 0 on give the name of a variable in ``pattern``, e.g. "encoder/layer_{}/norm"."""
        number = 0
        while pattern.format(number) in self.variables:
            number += 1
        return number

    def _variable(self, name: str) -> Variable:
        found = self.variables.get(name)
        if found is None:
            raise ImportModelError(
                f"{self.path}: the variable '{name}' is missing", hint="the model has another architecture"
            )
        return found


def open_model(path: Path) -> ModelFile:
    """Open ``path``; raises ImportModelError when it is no whole CTranslate2 model of the known format."""
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ImportModelError(f"{path}: no such file", hint="give the folder with model.bin") from error
    except (OSError, ValueError) as error:  # a ValueError: an empty file cannot be mapped
        raise ImportModelError(f"{path}: cannot be read: {error}", hint=_AGAIN) from error
    return _Reader(path, memoryview(mapped)).read()


class _Reader:
    """Reads the file from its beginning; whatever lies beyond its end is a named error."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self._path, self._data, self._at = path, data, 0

    def read(self) -> ModelFile:
        version = self._number("I", "the format's version")
        if version != VERSION:
            raise ImportModelError(
                f"{self._path}: not a CTranslate2 model of format {VERSION}: it begins with {version}",
                hint="give a model.bin, converted by CTranslate2 3 or 4",
            )
        kind = self._text("the model's kind")
        self._number("I", "the model's revision")
        variables: dict[str, Variable] = {}
        for index in range(self._number("I", "the number of variables")):
            variable = self._variable(index)
            if variable.name in variables:
                raise self._damaged(f"the variable '{variable.name}' is there twice")
            variables[variable.name] = variable
        for index in range(self._number("I", "the number of aliases")):
            alias, name = self._text(f"alias {index}"), self._text(f"alias {index}")
            if name not in variables or alias in variables:
                raise self._damaged(f"the alias '{alias}' of '{name}' does not fit the variables")
            variables[alias] = variables[name]
        if self._at != len(self._data):
            raise self._damaged(f"{len(self._data) - self._at} bytes follow its end")
        return ModelFile(self._path, kind, variables)

    def _variable(self, index: int) -> Variable:
        name = self._text(f"the name of variable {index}")
        what = f"variable '{name}'"
        rank = self._number("B", what)
        if rank > _MOST_AXES:
            raise self._damaged(f"{what} has {rank} axes")
        shape = tuple(self._number("I", what) for _ in range(rank))
        number = self._number("B", what)
        if number >= len(_DTYPES):
            raise self._damaged(f"{what} has the dtype number {number}, of {len(_DTYPES)}")
        dtype, form = _DTYPES[number]
        size = self._number("I", what)
        if size != math.prod(shape) * np.dtype(form).itemsize:
            raise self._damaged(f"{what} has {size} bytes for the shape {list(shape)} in {dtype}")
        return Variable(name, dtype, np.frombuffer(self._take(size, what), form).reshape(shape))

    def _text(self, what: str) -> str:
        data = bytes(self._take(self._number("H", what), what))
        try:
            return data.removesuffix(b"\0").decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"{what} is no text") from error

    def _number(self, form: str, what: str) -> int:
        (number,) = struct.unpack(f"<{form}", self._take(struct.calcsize(form), what))
        return int(number)

    def _take(self, size: int, what: str) -> memoryview:
        end = self._at + size
        if end > len(self._data):
            raise ImportModelError(
                f"{self._path}: the file is cut: {what} should go on to byte {end}, the file has {len(self._data)}",
                hint=_AGAIN,
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _damaged(self, what: str) -> ImportModelError:
        return ImportModelError(f"{self._path}: damaged CTranslate2 model: {what}", hint=_AGAIN)
